"""CUDA as a backend of the delegate's core."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from runtime.delegates.gpu.backends.base import Progress, Recording, unwatched
from runtime.delegates.gpu.backends.cuda.device import (
    OpenedDevice,
    capabilities,
    choose_device,
    list_devices,
    open_device,
)
from runtime.delegates.gpu.backends.cuda.faults import device_errors
from runtime.delegates.gpu.backends.cuda.library import KernelLibrary, LoadedKernels
from runtime.delegates.gpu.backends.cuda.recording import CudaRecording
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.keep.cache import Cache, open_cache
from runtime.delegates.gpu.layout.packed_file import Constants
from runtime.delegates.gpu.layout.recording_plan import RecordingPlan
from runtime.delegates.gpu.layout.source import Source
from runtime.delegates.gpu.settings.precision import Findings, Trial, untried


@dataclass(frozen=True, slots=True)
class CudaBackend:
    """An opened CUDA device; see `backends.base.Backend`."""

    opened: OpenedDevice
    cache: Cache

    @classmethod
    def open(cls, wanted: str | int | None, cache_folder: Path | None) -> "CudaBackend":
        """Open a device as `device.open_device` does, and a cache in this folder. Raises as that."""
        return cls(open_device(wanted), open_cache(cache_folder))

    @staticmethod
    def described(wanted: str | int | None) -> Capabilities:
        """Describe a device without a context. Raises `DelegateError`, `DeviceError`."""
        return capabilities(choose_device(wanted, list_devices()))

    @property
    def capabilities(self) -> Capabilities:
        """The device's identity and abilities."""
        return self.opened.capabilities

    @property
    def _library(self) -> KernelLibrary:
        return KernelLibrary(self.opened, self.cache)

    def findings(self) -> Findings:
        """Return what follows from the compute capability; nothing is tried.

        The matrix units multiply all types from 8.0 on (PTX ISA, mma). Code for devices below 7.5 is
        compiled for 6.0, which has no `dp4a`.
        """
        target = self.opened.device.target
        fault = "" if target >= (7, 5) else "its code has no instruction for them"
        faults = {**untried("cuda").faults, Trial.BYTE_DOT_PRODUCTS: fault}
        return Findings(faults, ("F16", "BF16", "TF32") if target >= (8, 0) else ())

    def knowing(self, capabilities: Capabilities) -> "CudaBackend":
        """Return the same device with other capabilities."""
        return replace(self, opened=replace(self.opened, capabilities=capabilities))

    def errors(self, what: str, needs: str = "") -> AbstractContextManager[None]:
        """Return a block in the device's context, whose errors become those of `faults.device_errors`."""
        return device_errors(what, self.opened, needs)

    def compile(self, source: Source, progress: Progress = unwatched) -> LoadedKernels:
        """Load kernels from the library, which compiles what it lacks. Raises `DelegateError`."""
        with self.errors("loading kernels"):
            return self._library.load(source, progress)

    def kernel_keys(self, source: Source) -> Mapping[str, str]:
        """See `backends.base.KeepingBackend`."""
        return self._library.keys(source)

    def record(self, plan: RecordingPlan, program: LoadedKernels, constants: Constants) -> Recording:
        """Allocate memory and bind launches to it. Raises `DeviceError`."""
        with self.errors("allocating memory", plan.needs):
            return CudaRecording(self.opened, plan, program, constants)

    def known(self, kernels: Mapping[str, str]) -> LoadedKernels | None:
        """See `backends.base.KeepingBackend`."""
        with self.errors("loading kernels"):
            return self._library.known(kernels)
