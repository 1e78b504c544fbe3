"""The options of a `CompiledModel`: the accelerators it is compiled for, and the options of each."""

from typing import NoReturn

from runtime.api.cpu_kernel_mode import CpuKernelMode
from runtime.api.cpu_options import CpuOptions
from runtime.api.gpu_options import GpuOptions
from runtime.api.hardware_accelerator import HardwareAccelerator
from runtime.api.intel_openvino_options import (
    IntelOpenVinoGraphBackend,
    IntelOpenVinoOptions,
    IntelOpenVinoPerformanceMode,
)
from runtime.api.npu_options import REFUSAL
from runtime.api.qualcomm_options import (
    QualcommBackend,
    QualcommDspPerformanceMode,
    QualcommGraphIOTensorMemType,
    QualcommGraphPriority,
    QualcommHtpPerformanceMode,
    QualcommLogLevel,
    QualcommOptimizationLevel,
    QualcommOptions,
    QualcommProfiling,
)

__all__ = ["CpuKernelMode", "CpuOptions", "GpuOptions", "HardwareAccelerator", "Options"]
__all__ += ["IntelOpenVinoGraphBackend", "IntelOpenVinoOptions", "IntelOpenVinoPerformanceMode"]
__all__ += ["QualcommBackend", "QualcommDspPerformanceMode", "QualcommGraphIOTensorMemType"]
__all__ += ["QualcommGraphPriority", "QualcommHtpPerformanceMode", "QualcommLogLevel"]
__all__ += ["QualcommOptimizationLevel", "QualcommOptions", "QualcommProfiling"]


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
            raise ValueError(f"options of an NPU: {REFUSAL}")
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

    @property
    def qualcomm_options(self) -> NoReturn:
        """Raise ValueError: there are no NPUs here."""
        raise ValueError(f"qualcomm_options: {REFUSAL}")

    @property
    def intel_openvino_options(self) -> NoReturn:
        """Raise ValueError: there are no NPUs here."""
        raise ValueError(f"intel_openvino_options: {REFUSAL}")
