"""LiteRT's choice between its kernel sets on the CPU; this runtime has one set, the exact kernels."""

from enum import IntEnum


class CpuKernelMode(IntEnum):
    """LiteRT's values. Every member runs the same kernels here."""

    DELEGATE = 0
    XNNPACK = 0
    REFERENCE = 1
    BUILTIN = 2
