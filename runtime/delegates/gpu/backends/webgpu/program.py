"""The kernels of a partition on a WebGPU device: translated, compiled, and told their work-groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import wgpu

from runtime.delegates.gpu.backends.base import Progress, unwatched
from runtime.delegates.gpu.backends.webgpu.adapter import OpenedAdapter, in_one_line
from runtime.delegates.gpu.backends.webgpu.faults import answers
from runtime.delegates.gpu.backends.webgpu.wgsl.module import ENTRY, translate
from runtime.delegates.gpu.layout.source import Kernel, Source
from runtime.errors import DelegateError


@dataclass(frozen=True, slots=True)
class Pipelines:
    """A pipeline for each function, by its number."""

    pipelines: Sequence[Any]


def compiled(opened: OpenedAdapter, source: Source, progress: Progress = unwatched) -> Pipelines:
    """Translate and compile every kernel.

    Raises `DelegateError` with what a kernel has outside of the portable subset, or with the driver's text.
    """
    found = []
    for number, kernel in enumerate(source.kernels):
        progress(number, len(source.kernels))
        found.append(_pipeline(opened, kernel))
    return Pipelines(found)


def _pipeline(opened: OpenedAdapter, kernel: Kernel) -> Any:
    module = translate(kernel.whole, kernel.name)
    device = opened.device
    size = (*kernel.group, 1, 1)[:3]
    constants = dict(zip(("local_x", "local_y", "local_z"), size, strict=True))
    try:
        shader = device.create_shader_module(label=kernel.name, code=module.text)
        return device.create_compute_pipeline(
            label=kernel.name,
            layout=device.create_pipeline_layout(bind_group_layouts=[_layout(device, module.writable)]),
            compute={"module": shader, "entry_point": ENTRY, "constants": constants},
        )
    except wgpu.GPUError as error:
        if not answers(device):
            # No fault of the kernel's: who asked for it says that the device is lost.
            raise
        raise DelegateError(
            f"gpu delegate: the WebGPU compiler of {opened.capabilities.name} failed in {kernel.name}: "
            f"{in_one_line(error)}\n{module.text}"
        ) from error


def _layout(device: Any, writable: Sequence[bool]) -> Any:
    """Return the bindings, including those that a kernel does not use: every kernel is bound alike."""
    visibility = wgpu.ShaderStage.COMPUTE
    entries: list[Mapping[str, Any]] = [
        {
            "binding": place,
            "visibility": visibility,
            "buffer": {"type": "storage" if is_writable else "read-only-storage"},
        }
        for place, is_writable in enumerate(writable)
    ]
    return device.create_bind_group_layout(entries=entries)
