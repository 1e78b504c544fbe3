"""Decides which devices of a host are compared with which baseline, and what such a comparison keeps busy.
Pure.

Cells of one model on one host are measured together by blocks (`agent.runner.judge.blocks`): a contender is
compared with the baseline on its own device, where that hosts the baseline's delegate, else on the CPU of its
host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from agent.wire.exclusion import joint_group


class HostDevice(Protocol):
    """The properties of a device that decide what it is compared with."""

    @property
    def device_id(self) -> str:
        """The id, such as `host-cpu`."""

    @property
    def kind(self) -> str:
        """`cpu` or `gpu`."""

    @property
    def delegates(self) -> Sequence[str]:
        """Kinds of delegates that it hosts."""

    @property
    def exclusion_group(self) -> str:
        """The path of what it shares silicon with."""


D = TypeVar("D", bound=HostDevice)


def baseline_device(device: D, host: Sequence[D], baseline_kind: str) -> D | None:
    """Return the device of a host on which the baseline of this one runs; None if none hosts the delegate.

    Devices that share no exclusion group at all cannot be leased together, and so are not compared.
    """
    hosting = [
        other
        for other in host
        if baseline_kind in other.delegates
        and joint_group((device.exclusion_group, other.exclusion_group)) is not None
    ]
    own = [other for other in hosting if other.device_id == device.device_id]
    processors = sorted((d for d in hosting if d.kind == "cpu"), key=lambda other: other.device_id)
    # Of several GPUs none is the host's: a CPU would be compared with whichever comes first.
    candidates = own or processors or (hosting if len(hosting) == 1 else [])
    return next(iter(candidates), None)


def compared_with(baseline: D, host: Sequence[D], baseline_kind: str) -> list[D]:
    """Return the devices of a host that are compared with the baseline on this device, itself among them."""
    return [device for device in host if baseline_device(device, host, baseline_kind) is baseline]


def kept_busy(device: D, host: Sequence[D], baseline_kind: str | None) -> str:
    """Return the exclusion group that a cell takes: with a baseline, that of all devices it is compared
    with.
    """
    baseline = None if baseline_kind is None else baseline_device(device, host, baseline_kind)
    if baseline is None or baseline_kind is None:
        return device.exclusion_group
    together = compared_with(baseline, host, baseline_kind)
    return joint_group(other.exclusion_group for other in together) or device.exclusion_group
