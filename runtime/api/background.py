"""Runs of a signature on the memory of `TensorBuffer`s: in the background, or by copies to and from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from runtime import errors
from runtime.api.event import Event
from runtime.api.tensor_buffer import HOST_MEMORY, TensorBuffer
from runtime.delegates.asynchrony import AsynchronousPartition
from runtime.interpreter.details import public_dtype
from runtime.model.graph import Signature, Subgraph, Tensor
from runtime.model.schema import TensorType
from runtime.ops.support.value import Array
from runtime.plan.execution import Execution
from runtime.plan.subgraph import PlannedSubgraph


@dataclass(frozen=True, slots=True)
class Route:
    """A partition that runs a whole signature; `inputs` and `outputs` are the places of its own there.

    It holds for as long as the subgraph has this execution.
    """

    execution: Execution
    partition: AsynchronousPartition
    subgraph: Subgraph
    signature: Signature
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def start(self, inputs: Sequence[TensorBuffer], outputs: Sequence[TensorBuffer]) -> Event:
        """Start a run on these buffers, which carry its event from then on.

        Raises `StatusError` for buffers and events that the device cannot use, `DeviceError` where it fails.
        """
        self._check_types("input", self.signature.inputs, inputs)
        self._check_types("output", self.signature.outputs, outputs)
        try:
            started = self.partition.start(
                [inputs[place].storage for place in self.inputs],
                [outputs[place].storage for place in self.outputs],
                [event.completion for event in fillings(inputs)],
                [event.completion for event in uses(outputs)],
            )
        except errors.DelegateError as error:
            raise errors.StatusError(str(error), errors.RUNTIME_FAILURE) from error
        event = Event(started.completion, started.copies)
        attach(event, inputs, outputs)
        return event

    def _check_types(
        self, kind: str, pairs: Sequence[tuple[str, int]], buffers: Sequence[TensorBuffer]
    ) -> None:
        """Check that a caller's OpenCL buffer has the tensor's own type; host memory is bytes."""
        for (name, index), buffer in zip(pairs, buffers, strict=True):
            if buffer.buffer_type == HOST_MEMORY:
                continue
            wanted = buffer_dtype(self.subgraph.tensors[index])
            if buffer.dtype != wanted:
                raise errors.StatusError(
                    f"{kind} {name!r} is {wanted.name}, and its buffer holds {buffer.dtype.name}; make the "
                    f"TensorBuffer with {wanted.name}",
                    errors.INVALID_ARGUMENT,
                )


def route_of(planned: PlannedSubgraph, signature: Signature) -> Route | None:
    """Return the route by which one partition runs a whole signature in the background, or None."""
    whole, execution = planned.whole(), planned.execution
    if whole is None or execution is None:
        return None
    partition, step = whole
    if not isinstance(partition, AsynchronousPartition) or not partition.starts:
        return None
    inputs, outputs = ([index for _, index in pairs] for pairs in (signature.inputs, signature.outputs))
    # Inputs that the partition does not read may remain; outputs must be its own to the last.
    if not set(step.inputs) <= set(inputs) or sorted(step.outputs) != sorted(outputs):
        return None
    return Route(
        execution,
        partition,
        planned.subgraph,
        signature,
        tuple(inputs.index(index) for index in step.inputs),
        tuple(outputs.index(index) for index in step.outputs),
    )


def fillings(inputs: Sequence[TensorBuffer]) -> list[Event]:
    """Return the runs that fill the inputs of another run, which needs their results."""
    return [event for event in dict.fromkeys(b.event or b.filling for b in inputs) if event is not None]


def uses(outputs: Sequence[TensorBuffer]) -> list[Event]:
    """Return the runs that use the outputs of another run, which begins only when they have ended."""
    events = (event for b in outputs for event in (b.event, *b.readers))
    return [event for event in dict.fromkeys(events) if event is not None]


def attach(event: Event, inputs: Sequence[TensorBuffer], outputs: Sequence[TensorBuffer]) -> None:
    """Take over the events of the inputs, and give the run's own event to its outputs."""
    for buffer in inputs:
        buffer.be_read_by(event)
    for buffer in outputs:
        buffer.be_filled_by(event)


def buffer_named(kind: str, buffers: Mapping[str, TensorBuffer], name: str) -> TensorBuffer:
    """Return the buffer for an input or output. Raises `StatusError`, whose text has `kind`, without one."""
    if name not in buffers:
        raise errors.StatusError(f"no buffer for {kind} {name!r}", errors.MISSING_INPUT)
    return buffers[name]


def buffer_dtype(tensor: Tensor) -> np.dtype[Any]:
    """Return the dtype of a tensor's elements in a buffer. Raises `StatusError` for strings."""
    if tensor.type is TensorType.STRING:
        raise errors.StatusError(f"tensor {tensor.name!r}: strings have no buffer", errors.UNSUPPORTED)
    found: np.dtype[Any] = np.dtype(public_dtype(tensor))
    return found


def memory_of(planned: PlannedSubgraph, index: int) -> Array:
    """Return the run's own memory of a tensor. Raises `StatusError` for one without values."""
    found = planned.array(index)
    if found is None:
        raise errors.StatusError(
            f"tensor {planned.subgraph.tensors[index].name!r} has no values", errors.RUNTIME_FAILURE
        )
    return found


def _require_room(kind: str, name: str, memory: Array, buffer: TensorBuffer) -> None:
    if buffer.size < memory.nbytes:
        raise errors.StatusError(
            f"Failed to register {kind} tensor buffer: {kind} {name!r} takes {memory.nbytes} bytes, its "
            f"buffer has {buffer.size}",
            errors.RUNTIME_FAILURE,
        )


def copy_in(target: Array, buffer: TensorBuffer, name: str) -> None:
    """Copy an input from the start of its buffer. Raises `StatusError` for one that is too small."""
    _require_room("input", name, target, buffer)
    with buffer.lock() as memory:
        np.copyto(target, memory[: target.nbytes].view(target.dtype).reshape(target.shape))


def copy_out(source: Array, buffer: TensorBuffer, name: str) -> None:
    """Copy an output to its buffer. Raises `StatusError` for one that is too small."""
    _require_room("output", name, source, buffer)
    with buffer.lock() as memory:
        memory[: source.nbytes] = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
