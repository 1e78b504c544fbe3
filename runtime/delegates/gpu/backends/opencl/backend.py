"""OpenCL as a backend of the delegate's core."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.delegates.gpu.backends.base import Recording
from runtime.delegates.gpu.backends.opencl.device import OpenedDevice, mapped_errors, open_device
from runtime.delegates.gpu.backends.opencl.program import build_program
from runtime.delegates.gpu.backends.opencl.recording import OpenClRecording
from runtime.delegates.gpu.cache_files import ProgramCache
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph import Graph
from runtime.delegates.gpu.memory import Stage
from runtime.delegates.gpu.source import Source

if TYPE_CHECKING:
    import pyopencl


@dataclass(frozen=True, slots=True)
class OpenClBackend:
    """An opened OpenCL device; see `backends.base.Backend`."""

    opened: OpenedDevice

    @classmethod
    def open(
        cls, wanted: str | int | None, cache_folder: Path | None, threads: int | None = None
    ) -> OpenClBackend:
        """Open a device as `device.open_device` does. Raises `DeviceError`, `DelegateError`."""
        return cls(open_device(wanted, cache_folder, threads))

    @property
    def capabilities(self) -> Capabilities:
        """What the device is and can do."""
        return self.opened.capabilities

    @property
    def cache_folder(self) -> Path | None:
        """Where programs and tuning results are kept; None keeps nothing."""
        return self.opened.cache_folder

    def errors(self, what: str) -> AbstractContextManager[None]:
        """A block whose OpenCL errors become `DeviceError`."""
        return mapped_errors(what)

    def compile(self, source: Source) -> pyopencl.Program:
        """Build from the driver's cached binary, else from source. Raises `DelegateError`."""
        cache = ProgramCache(self.cache_folder)
        return build_program(self.opened.context, self.capabilities, source.text, cache)

    def record(
        self, graph: Graph, stages: Sequence[Stage], source: Source, program: pyopencl.Program
    ) -> Recording:
        """Allocate buffers and set the kernels' arguments. Raises `DelegateError`, `DeviceError`."""
        return OpenClRecording(self.opened, graph, stages, source, program)
