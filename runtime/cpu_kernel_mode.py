"""Which of its kernel sets LiteRT uses on the CPU; ours has one, the exact ones."""

from __future__ import annotations

from enum import IntEnum


class CpuKernelMode(IntEnum):
    """LiteRT's values. Every member runs the same kernels here."""

    DELEGATE = 0
    XNNPACK = 0
    REFERENCE = 1
    BUILTIN = 2
