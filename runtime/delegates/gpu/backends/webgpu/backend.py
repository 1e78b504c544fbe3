"""WebGPU as a backend of the delegate's core."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from runtime.delegates.gpu.backends.base import Progress, Recording, unwatched
from runtime.delegates.gpu.backends.webgpu import adapter
from runtime.delegates.gpu.backends.webgpu.recording import Pipelines, WebGpuRecording
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.keep.cache import Cache, open_cache
from runtime.delegates.gpu.layout.packed_file import Constants
from runtime.delegates.gpu.layout.recording_plan import RecordingPlan
from runtime.delegates.gpu.layout.source import Source
from runtime.delegates.gpu.settings.precision import Findings, untried


@dataclass(frozen=True, slots=True)
class WebGpuBackend:
    """An opened WebGPU adapter; see `backends.base.Backend`."""

    opened: adapter.OpenedAdapter
    cache: Cache

    @classmethod
    def open(cls, interface: str, wanted: str | int | None, cache_folder: Path | None) -> "WebGpuBackend":
        """Open an adapter as `open_adapter` does, and a cache. Raises `DeviceError` or `DelegateError`."""
        return cls(adapter.open_adapter(interface, wanted), open_cache(cache_folder))

    @staticmethod
    def described(interface: str, wanted: str | int | None) -> Capabilities:
        """Describe an adapter without opening it. Raises `DeviceError` if there is none."""
        return adapter.described(adapter.choose_adapter(interface, wanted))

    @property
    def capabilities(self) -> Capabilities:
        """The adapter's identity and abilities."""
        return self.opened.capabilities

    def findings(self) -> Findings:
        """Return that weights may be narrow; nothing is tried."""
        return untried("webgpu")

    def knowing(self, capabilities: Capabilities) -> "WebGpuBackend":
        """Return the same device with other capabilities."""
        return replace(self, opened=replace(self.opened, capabilities=capabilities))

    def errors(self, what: str, needs: str = "") -> AbstractContextManager[None]:
        """Return a block whose WebGPU errors become those of `adapter.device_errors`."""
        return adapter.device_errors(what, self.opened, needs)

    def compile(self, source: Source, progress: Progress = unwatched) -> Pipelines:
        """Return the kernels, which `record` compiles."""
        return Pipelines(self.opened, source.kernels, progress)

    def record(self, plan: RecordingPlan, program: Pipelines, constants: Constants) -> Recording:
        """Compile kernels, allocate buffers and bind both. Raises `DelegateError`, `DeviceError`."""
        return WebGpuRecording(self.opened, plan, program, constants)
