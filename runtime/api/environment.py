"""The environment that compiled models share: LiteRT's search paths, and whether it is still open."""

from dataclasses import dataclass
from typing import Any

from runtime.api.hardware_accelerator import HardwareAccelerator


@dataclass(frozen=True)
class EnvironmentOptions:
    """LiteRT's search paths. Our delegates are found by entry point, so nothing is loaded from these.

    `opencl_context`: the caller's own `pyopencl.Context`, of one device, in which models for a GPU are
    compiled, so that they can use its buffers and events; None for one that all models share.
    """

    runtime_path: str = ""
    compiler_plugin_path: str = ""
    dispatch_library_path: str = ""
    opencl_context: Any = None


class Environment:
    """The environment for compiling models; a context manager. A closed one compiles no model."""

    def __init__(self, options: EnvironmentOptions | None = None) -> None:
        self._options = options or EnvironmentOptions()
        self._is_open = True

    @classmethod
    def create(
        cls,
        *,
        options: EnvironmentOptions | None = None,
        runtime_path: str | None = None,
        compiler_plugin_path: str = "",
        dispatch_library_path: str = "",
        opencl_context: Any = None,
    ) -> "Environment":
        """Make an environment of `options`, or of single ones. Raises ValueError where both are given."""
        if options is not None:
            if runtime_path or compiler_plugin_path or dispatch_library_path or opencl_context is not None:
                raise ValueError("Pass either options or environment path shortcuts.")
            return cls(options)
        return cls(
            EnvironmentOptions(
                runtime_path or "", compiler_plugin_path, dispatch_library_path, opencl_context
            )
        )

    @property
    def options(self) -> EnvironmentOptions:
        """The search paths with which the environment was made."""
        return self._options

    @property
    def capsule(self) -> object:
        """Stands for the native environment. Raises ValueError once closed."""
        if not self._is_open:
            raise ValueError("Environment is no longer valid")
        return self

    def available_accelerators(self) -> HardwareAccelerator:
        """CPU always; GPU where our `gpu` delegate finds an OpenCL device that it can open."""
        from runtime.delegates.registry import load_delegate  # noqa: PLC0415  # opens a device

        try:
            load_delegate("gpu")
        except RuntimeError:
            return HardwareAccelerator.CPU
        return HardwareAccelerator.CPU | HardwareAccelerator.GPU

    def close(self) -> None:
        """Let no further model be compiled; those that exist keep working."""
        self._is_open = False

    def __enter__(self) -> "Environment":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
