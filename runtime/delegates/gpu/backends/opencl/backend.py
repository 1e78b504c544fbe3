"""OpenCL as a backend of the delegate's core."""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runtime.delegates.gpu.backends.base import Progress, Recording, unwatched
from runtime.delegates.gpu.backends.opencl.device import (
    OpenedDevice,
    list_devices,
    open_device,
    release_unused_code_of,
)
from runtime.delegates.gpu.backends.opencl.faults import device_errors
from runtime.delegates.gpu.backends.opencl.library import KernelLibrary, LoadedKernels
from runtime.delegates.gpu.backends.opencl.precision_probe import probe_precision
from runtime.delegates.gpu.backends.opencl.recording import OpenClRecording
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.keep.cache import Cache, open_cache
from runtime.delegates.gpu.layout.packed_file import Constants
from runtime.delegates.gpu.layout.recording_plan import RecordingPlan
from runtime.delegates.gpu.layout.source import Source
from runtime.delegates.gpu.settings.precision import Findings


@dataclass(frozen=True, slots=True)
class OpenClBackend:
    """An opened OpenCL device; see `backends.base.Backend`."""

    opened: OpenedDevice
    cache: Cache
    library: KernelLibrary

    @classmethod
    def open(
        cls,
        wanted: str | int | None,
        cache_folder: Path | None,
        threads: int | None = None,
        device_class: str = "auto",
        context: Any = None,
    ) -> "OpenClBackend":
        """Open a device as `open_device` does, and its cache. Raises `DeviceError` or `DelegateError`."""
        cache = open_cache(cache_folder)
        # Drivers read them once, when the process first asks for its devices.
        folders = cache.driver_folders()
        for variable, folder in folders.items():
            os.environ.setdefault(variable, str(folder))
        opened = open_device(wanted, threads, device_class, context)
        # Some drivers keep nothing in a folder that is not there; PoCL makes its own.
        for folder in () if opened.capabilities.is_pocl else folders.values():
            with suppress(OSError):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A child process has no handle of this one's: it finds the device by its place in the loader's list.
        index = list_devices().index(opened.device)
        library = KernelLibrary(opened.context, opened.capabilities, index, cache)
        with device_errors(f"binding threads of {opened.capabilities.name}", opened.context):
            bound = library.bind_threads(opened.device)
        # Behind the driver's own first steps: what follows is data and launches.
        release_unused_code_of(opened.device)
        shares_one = library.calls_addresses
        known = replace(opened.capabilities, shares_one_kernel=shares_one, driver_threads=bound)
        return cls(replace(opened, capabilities=known), cache, library)

    @property
    def capabilities(self) -> Capabilities:
        """The device's identity and abilities."""
        return self.opened.capabilities

    def findings(self) -> Findings:
        """Return the findings of trials in processes of their own, kept in the cache."""
        return probe_precision(self.opened.device, self.capabilities, self.cache)

    def knowing(self, capabilities: Capabilities) -> "OpenClBackend":
        """Return the same device with other capabilities, such as a probe's findings."""
        return replace(self, opened=replace(self.opened, capabilities=capabilities))

    def errors(self, what: str, needs: str = "") -> AbstractContextManager[None]:
        """Return a block whose OpenCL errors become those of `faults.device_errors`."""
        return device_errors(f"{what} on {self.capabilities.name}", self.opened.context, needs)

    def compile(self, source: Source, progress: Progress = unwatched) -> LoadedKernels:
        """Take kernels from the library, which compiles what it lacks. Raises `DelegateError`."""
        return self.library.load(source, progress)

    def kernel_keys(self, source: Source) -> Mapping[str, str]:
        """Return the keys of the library's entries, of the kind `kernels`, by the kernels' names."""
        return self.library.keys(source)

    def known(self, kernels: Mapping[str, str]) -> LoadedKernels | None:
        """See `backends.base.KeepingBackend`."""
        return self.library.known(kernels)

    def record(self, plan: RecordingPlan, program: LoadedKernels, constants: Constants) -> Recording:
        """Allocate buffers and set the kernels' arguments. Raises `DeviceError`."""
        return OpenClRecording(self.opened, plan, program, constants)
