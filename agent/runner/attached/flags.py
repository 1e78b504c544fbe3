"""Translates a cell's options, plan and inputs into flags of `benchmark_model`.

What the tool cannot do is refused, with the reason: a result never stands for other options than the cell's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from agent.attempt.files import AttemptFile
from agent.wire.messages import RELEASE_OPTION
from agent.wire.plan import InputSpec, MeasurePlan
from runtime.delegates.litert import REFERENCE, XNNPACK
from runtime.delegates.registry import delegate_descriptor
from runtime.errors import NoDeviceError
from runtime.model.graph import Tensor
from runtime.model.reader import read_model
from runtime.model.schema import TensorType

GPU_KIND: Final = "litert-gpu"

MOST_SECONDS: Final = 150
"""Seconds after which the tool begins no further run: LiteRT's own default."""

_INTEGERS: Final = (
    TensorType.INT8, TensorType.UINT8, TensorType.INT16, TensorType.UINT16,
    TensorType.INT32, TensorType.UINT32, TensorType.INT64, TensorType.UINT64,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The flags of every run, without the model's, and the bytes of the inputs that are given by files."""

    flags: Mapping[str, str]
    input_bytes: Mapping[str, bytes] = field(default_factory=dict)

    def words(self, tool: str, graph: str, input_files: Mapping[str, str]) -> list[str]:
        """Return the command line, with the places of the files on the device."""
        flags = {"graph": graph, **self.flags}
        if input_files:
            pairs = (f"{_escaped(name)}:{_escaped(path)}" for name, path in input_files.items())
            flags["input_layer_value_files"] = ",".join(pairs)
        return [tool, *(f"--{name}={value}" for name, value in flags.items())]


def tool_call(attempt: AttemptFile, cpus: int) -> ToolCall:
    """Return how the tool is called for an attempt on a device of so many CPUs.

    Raises `NoDeviceError` for what the tool or the device does not offer, `DelegateError` for options that no
    tool has, and the reader's errors for a model of which inputs are given.
    """
    job = attempt.job
    flags = {**_of_plan(job.plan), **_of_options(job.delegate_kind, job.delegate_options, cpus)}
    if not any(_is_given(spec) for spec in job.inputs.values()):
        return ToolCall(flags)
    model = read_model(Path(attempt.model_path).read_bytes())
    graph = model.subgraphs[0]
    inputs = {graph.tensors[index].name: graph.tensors[index] for index in graph.inputs}
    if unknown := [name for name in job.inputs if name not in inputs]:
        raise NoDeviceError(f"the model has no input {unknown[0]!r}, but {', '.join(inputs)}")
    return ToolCall(
        {**flags, **_of_inputs(inputs, job.inputs)},
        {name: _first_sample(Path(path)) for name, path in attempt.input_paths.items()},
    )


def _of_plan(plan: MeasurePlan) -> dict[str, str]:
    """Return the counts of one block: as many runs as its rounds have."""
    return {
        "num_runs": str(plan.rounds * plan.slice_runs),
        "min_secs": f"{plan.rounds * plan.slice_seconds:g}",
        "max_secs": str(MOST_SECONDS),
        "warmup_runs": str(max(1, plan.warmup_runs)),
        "warmup_min_secs": f"{plan.warmup_seconds:g}",
    }


def _of_options(kind: str, given: Mapping[str, Any], cpus: int) -> dict[str, str]:
    """Return the delegate's flags. Raises `NoDeviceError`, and `DelegateError` for an unknown option."""
    declared = delegate_descriptor(kind).options
    options = delegate_descriptor(kind).parse(given)
    threads = cpus if options.pop("threads") is None else int(given["threads"])
    if threads > cpus:
        raise NoDeviceError(f"threads: {threads} are asked for, and the device has {cpus} CPUs")
    flags = {"num_threads": str(threads)}
    if kind == GPU_KIND:
        precision = options.pop("precision")
        flags |= {"use_gpu": "true", "gpu_precision_loss_allowed": _word(precision == "fp16")}
        flags["require_full_delegation"] = _word(options.pop("require_full_delegation"))
    else:
        resolver = options.pop("resolver")
        if resolver == REFERENCE:
            raise NoDeviceError(f"resolver: benchmark_model has no {resolver} kernels")
        flags["use_xnnpack"] = _word(resolver == XNNPACK)
    for name, value in options.items():
        if value != declared[name].default:
            why = "the release is that of the tool there" if name == RELEASE_OPTION else "it has no such flag"
            raise NoDeviceError(f"{name}: {value!r} is not offered by benchmark_model on a device: {why}")
    return flags


def _is_given(spec: InputSpec) -> bool:
    return spec.shape is not None or spec.data is not None or spec.low is not None or spec.high is not None


def _of_inputs(inputs: Mapping[str, Tensor], specs: Mapping[str, InputSpec]) -> dict[str, str]:
    """Return names, shapes and ranges. The tool wants the shapes of all inputs where it gets one of them.

    Raises `NoDeviceError` for a shape that nothing tells.
    """
    shapes = {name: _shape(tensor, specs.get(name)) for name, tensor in inputs.items()}
    ranges = [
        f"{name},{int(spec.low or 0)},{int(spec.high)}"
        for name, spec in specs.items()
        # Of floats the range changes no time, and the tool's ranges are whole numbers.
        if spec.high is not None and inputs[name].type in _INTEGERS
    ]
    return {
        "input_layer": ",".join(shapes),
        "input_layer_shape": ":".join(",".join(map(str, shape)) for shape in shapes.values()),
        **({"input_layer_value_range": ":".join(ranges)} if ranges else {}),
    }


def _shape(tensor: Tensor, spec: InputSpec | None) -> tuple[int, ...]:
    shape = tensor.shape if spec is None or spec.shape is None else spec.shape
    if any(size < 1 for size in shape):
        raise NoDeviceError(f"input {tensor.name!r} has no fixed shape; give one under inputs")
    return tuple(shape)


def _first_sample(file: Path) -> bytes:
    """Return the bytes of the first sample: the tool runs on one set of inputs."""
    # Mapped, since one sample of many is read; a pickle would run code.
    array = np.load(file, mmap_mode="r", allow_pickle=False)
    return bytes(np.ascontiguousarray(array[0]).tobytes())


def _escaped(text: str) -> str:
    """Return a name or a path in which a colon separates nothing, as the tool reads it."""
    return text.replace(":", "::")


def _word(value: bool) -> str:
    return "true" if value else "false"
