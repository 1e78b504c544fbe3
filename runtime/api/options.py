"""The options of a `CompiledModel`: the accelerators it is compiled for, and the options of each."""

from runtime.api.cpu_kernel_mode import CpuKernelMode
from runtime.api.cpu_options import CpuOptions
from runtime.api.gpu_options import GpuOptions
from runtime.api.hardware_accelerator import HardwareAccelerator

__all__ = ["CpuKernelMode", "CpuOptions", "GpuOptions", "HardwareAccelerator", "Options"]


class Options:
    """The accelerators and the options of each; those of CPU and GPU are made when they are first read.

    Raises ValueError for options of vendors' NPUs, which this runtime cannot drive.
    """

    def __init__(
        self,
        hardware_accelerators: HardwareAccelerator = HardwareAccelerator.CPU,
        cpu_options: CpuOptions | None = None,
        gpu_options: GpuOptions | None = None,
        qualcomm_options: object | None = None,
        intel_openvino_options: object | None = None,
    ) -> None:
        if qualcomm_options is not None or intel_openvino_options is not None:
            raise ValueError("options of an NPU: this runtime drives CPUs and OpenCL devices only")
        self.hardware_accelerators = hardware_accelerators
        self._cpu_options = cpu_options
        self._gpu_options = gpu_options

    @classmethod
    def create(cls) -> "Options":
        """Create the default options: the CPU."""
        return cls()

    @property
    def cpu_options(self) -> CpuOptions:
        """Options of the CPU, to be changed in place."""
        if self._cpu_options is None:
            self._cpu_options = CpuOptions()
        return self._cpu_options

    @property
    def gpu_options(self) -> GpuOptions:
        """Options of the GPU, to be changed in place."""
        if self._gpu_options is None:
            self._gpu_options = GpuOptions()
        return self._gpu_options
