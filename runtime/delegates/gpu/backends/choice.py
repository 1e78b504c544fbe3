"""The backend that the options name, opened or only described: the one place that knows all of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from runtime.common.installation import install_command
from runtime.delegates.gpu.backends.base import Backend
from runtime.delegates.gpu.backends.cuda.backend import CudaBackend
from runtime.delegates.gpu.backends.opencl.backend import OpenClBackend
from runtime.delegates.gpu.backends.opencl.device import bounded, capabilities, choose_device, classed
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.settings.options import Options
from runtime.errors import DelegateError

if TYPE_CHECKING:
    from runtime.delegates.gpu.backends.webgpu.backend import WebGpuBackend


def open_backend(options: Options, folder: Path | None) -> Backend:
    """Open the chosen device of the backend, with a cache in this folder.

    Raises:
        DeviceError: no such device.
        DelegateError: the backend cannot be loaded, or the driver refuses.
    """
    if options.backend == "cuda":
        return CudaBackend.open(options.device, folder)
    if options.backend != "opencl":
        backend = _webgpu().open(options.backend, options.device, folder)
        return backend.knowing(classed(backend.capabilities, options.device_class))
    return OpenClBackend.open(options.device, folder, options.threads, options.device_class, options.context)


def describe_device(options: Options) -> Capabilities:
    """Describe the chosen device as far as it is known before it is opened.

    Raises `DeviceError` or `DelegateError`, as `open_backend`.
    """
    if options.backend == "cuda":
        return CudaBackend.described(options.device)
    if options.backend != "opencl":
        return classed(_webgpu().described(options.backend, options.device), options.device_class)
    return classed(
        bounded(capabilities(choose_device(options.device)), options.threads), options.device_class
    )


def _webgpu() -> type[WebGpuBackend]:
    """Return the backend of WebGPU, whose packages no other needs. Raises `DelegateError` without them."""
    try:
        from runtime.delegates.gpu.backends.webgpu.backend import WebGpuBackend  # noqa: PLC0415 - on demand
    # OSError, because `wgpu` loads its native library when it is imported.
    except (ImportError, OSError) as error:
        raise DelegateError(
            f"gpu delegate: the backend webgpu cannot be loaded ({error}): {install_command('webgpu')}"
        ) from error
    return WebGpuBackend


# Layers, injected libraries and debug output, any of which can change a run's times.
_VARIABLES: Final = (
    "OPENCL_LAYERS",
    "LD_PRELOAD",
    "POCL_DEBUG",
    "POCL_TRACING",
    "OCL_ICD_DEBUG",
    "RUSTICL_DEBUG",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_INJECTION64_PATH",
    "VK_INSTANCE_LAYERS",
    "VK_LOADER_LAYERS_ENABLE",
)


def in_the_way(environment: Mapping[str, str] = os.environ) -> str:
    """Return the variables that put something there, with their values; empty if there are none."""
    found = ((name, environment.get(name, "").strip()) for name in _VARIABLES)
    return "; ".join(f"{name}={value}" for name, value in found if value not in ("", "0"))
