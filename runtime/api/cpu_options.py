"""The options that say how a `CompiledModel` uses the CPU."""

from dataclasses import dataclass

from runtime.api.cpu_kernel_mode import CpuKernelMode


@dataclass
class CpuOptions:
    """LiteRT's options of the CPU.

    `num_threads`: threads that a kernel may use, 0 for one. The others steer XNNPACK and YNNPACK, which this
    runtime has not: they are accepted, and there is nothing for them to change.
    """

    num_threads: int = 0
    kernel_mode: CpuKernelMode | None = None
    enable_ynnpack: bool = False
    xnnpack_flags: int | None = None
    xnnpack_weight_cache_path: str = ""
