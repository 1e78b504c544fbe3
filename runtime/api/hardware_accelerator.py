"""The hardware that may run a `CompiledModel`, as bits."""

from enum import IntFlag


class HardwareAccelerator(IntFlag):
    """Combine with `|`: `GPU | CPU` lets the CPU take what the GPU does not."""

    CPU = 1
    GPU = 2
    NPU = 4
