"""OpenCL as a backend of the delegate's core."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from runtime.delegates.gpu.backends.base import Progress, Recording, unwatched
from runtime.delegates.gpu.backends.opencl.device import (
    OpenedDevice,
    list_devices,
    mapped_errors,
    open_device,
)
from runtime.delegates.gpu.backends.opencl.library import KernelLibrary, LoadedKernels
from runtime.delegates.gpu.backends.opencl.precision_probe import probe_precision
from runtime.delegates.gpu.backends.opencl.recording import OpenClRecording
from runtime.delegates.gpu.cache import Cache, open_cache
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph import Graph
from runtime.delegates.gpu.memory import Stage
from runtime.delegates.gpu.packed_file import PackedFiles
from runtime.delegates.gpu.precision import Findings
from runtime.delegates.gpu.source import Source


@dataclass(frozen=True, slots=True)
class OpenClBackend:
    """An opened OpenCL device; see `backends.base.Backend`."""

    opened: OpenedDevice
    cache: Cache
    library: KernelLibrary

    @classmethod
    def open(
        cls, wanted: str | int | None, cache_folder: Path | None, threads: int | None = None
    ) -> OpenClBackend:
        """Open a device as `device.open_device` does, and a cache in this folder.

        Raises `DeviceError` or `DelegateError`.
        """
        cache = open_cache(cache_folder)
        if cache.pocl_folder is not None:
            # PoCL reads it once, when the process first asks for its devices.
            os.environ.setdefault("POCL_CACHE_DIR", str(cache.pocl_folder))
        opened = open_device(wanted, threads)
        index = list_devices().index(opened.device)
        library = KernelLibrary(opened.context, opened.capabilities, index, cache)
        known = replace(opened.capabilities, shares_one_kernel=library.calls_addresses)
        return cls(replace(opened, capabilities=known), cache, library)

    @property
    def capabilities(self) -> Capabilities:
        """What the device is and can do."""
        return self.opened.capabilities

    def findings(self) -> Findings:
        """What trials in processes of their own found, kept in the cache."""
        return probe_precision(self.opened.device, self.capabilities, self.cache)

    def multiplying_bf16(self) -> OpenClBackend:
        """The same device, for programs that may multiply pairs of bfloat16 by one instruction."""
        known = replace(self.capabilities, multiplies_bf16=True)
        return replace(self, opened=replace(self.opened, capabilities=known))

    def multiplying_bytes(self) -> OpenClBackend:
        """The same device, for programs that may multiply bytes, four at a time, by one instruction."""
        known = replace(self.capabilities, multiplies_bytes=True)
        return replace(self, opened=replace(self.opened, capabilities=known))

    def errors(self, what: str) -> AbstractContextManager[None]:
        """A block whose OpenCL errors become `DeviceError`, which names the device."""
        return mapped_errors(f"{what} on {self.capabilities.name}")

    def compile(self, source: Source, progress: Progress = unwatched) -> LoadedKernels:
        """Take kernels from the library, which compiles what it lacks. Raises `DelegateError`."""
        return self.library.load(source, progress)

    def record(
        self,
        graph: Graph,
        stages: Sequence[Stage],
        source: Source,
        program: LoadedKernels,
        files: PackedFiles | None = None,
    ) -> Recording:
        """Allocate buffers and set the kernels' arguments. Raises `DelegateError`, `DeviceError`."""
        return OpenClRecording(self.opened, graph, stages, source, program, files)
