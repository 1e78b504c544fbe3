"""Checks every operator of a delegate on a device against the CPU path, before models are trusted to it."""

from runtime.tools.operator_check.check import check_device

__all__ = ["check_device"]
