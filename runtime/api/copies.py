"""Copies between the tensors of a run and the caller's buffers, where a delegate does not use these."""

import numpy as np

from runtime.api.tensor_buffer import TensorBuffer
from runtime.errors import RUNTIME_FAILURE, StatusError
from runtime.ops.support.value import Array
from runtime.plan.subgraph import PlannedSubgraph


def memory_of(planned: PlannedSubgraph, index: int) -> Array:
    """Return the run's own memory of a tensor. Raises `StatusError` for one without values."""
    found = planned.array(index)
    if found is None:
        raise StatusError(f"tensor {planned.subgraph.tensors[index].name!r} has no values", RUNTIME_FAILURE)
    return found


def copy_in(target: Array, buffer: TensorBuffer, name: str) -> None:
    """Copy an input from the start of its buffer. Raises `StatusError` for one that is too small."""
    if buffer.size < target.nbytes:
        raise StatusError(
            f"Failed to register input tensor buffer: input {name!r} takes {target.nbytes} bytes, its buffer "
            f"has {buffer.size}",
            RUNTIME_FAILURE,
        )
    with buffer.lock() as memory:
        np.copyto(target, memory[: target.nbytes].view(target.dtype).reshape(target.shape))


def copy_out(source: Array, buffer: TensorBuffer, name: str) -> None:
    """Copy an output to its buffer. Raises `StatusError` for one that is too small."""
    if buffer.size < source.nbytes:
        raise StatusError(
            f"Failed to register output tensor buffer: output {name!r} has {source.nbytes} bytes, its buffer "
            f"{buffer.size}",
            RUNTIME_FAILURE,
        )
    with buffer.lock() as memory:
        memory[: source.nbytes] = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
