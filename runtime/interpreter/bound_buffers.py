"""Memory of the caller's that an `Interpreter` reads and fills in place of its own.

A quantised tensor takes a buffer of its own type, or one of float32 with the real numbers. These are rounded
to the tensor's levels on the way in.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from runtime.delegates.asynchrony import AsynchronousPartition
from runtime.delegates.storage import HostStorage, Storage
from runtime.interpreter.details import public_dtype
from runtime.model.graph import Tensor
from runtime.model.schema import TensorType
from runtime.ops.support.quantization import quantize
from runtime.ops.support.value import Array, Shape
from runtime.plan.subgraph import PlannedSubgraph

_LEVELS = (TensorType.INT8, TensorType.UINT8, TensorType.INT16)
"""Types of quantised tensors that may have a buffer of real numbers."""


_REAL = np.dtype(np.float32)


class BoundBuffer(Protocol):
    """The interface of a `TensorBuffer` to an interpreter."""

    @property
    def storage(self) -> Storage:
        """The memory. Raises RuntimeError once destroyed."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of an element."""

    def wait(self) -> None:
        """Return when the run that fills the buffer is done. Raises its error where it failed."""


class BoundBuffers:
    """The buffers of a subgraph's inputs and outputs, and the outputs that the interpreter has not copied."""

    def __init__(self) -> None:
        self.leaves_outputs = False
        self._buffers: dict[int, BoundBuffer] = {}
        self._left: dict[int, tuple[BoundBuffer, Shape]] = {}
        """The buffer and the shape of each output that is there alone, also after it has lost the buffer."""

    def bind(self, tensor: Tensor, planned: PlannedSubgraph, buffer: BoundBuffer | None) -> None:
        """Give a tensor a buffer, or with None take it away. Raises RuntimeError where it does not fit."""
        name, subgraph = f"Tensor {tensor.index} ({tensor.name!r})", planned.subgraph
        if tensor.index not in (*subgraph.inputs, *subgraph.outputs):
            raise RuntimeError(f"{name} is neither an input nor an output; only these can have a buffer.")
        if buffer is None:
            self._buffers.pop(tensor.index, None)
            return
        wanted = np.dtype(public_dtype(tensor))
        if _is_real(tensor, buffer):
            wanted = buffer.dtype
        needed = prod(planned.shape(tensor.index)) * wanted.itemsize
        if buffer.dtype != wanted:
            raise RuntimeError(
                f"{name} is {wanted.name}, and its buffer holds {buffer.dtype.name}; make the TensorBuffer "
                f"with {wanted.name}."
            )
        if buffer.storage.size < needed:
            raise RuntimeError(
                f"{name} takes {needed} bytes, and its buffer has {buffer.storage.size}; make it larger."
            )
        self._buffers[tensor.index] = buffer

    def run(
        self, planned: PlannedSubgraph, plainly: Callable[[PlannedSubgraph], None], *, copies: bool = False
    ) -> None:
        """Run once, `plainly` with copies where asked, or where no delegate runs the whole on the buffers."""
        self.forget()
        if not self._buffers:
            plainly(planned)
            return
        for buffer in self._buffers.values():
            buffer.wait()
        inputs, outputs = self._of(planned.subgraph.inputs), self._of(planned.subgraph.outputs)
        if not copies and self._ran_there(planned):
            for index, buffer in outputs:
                if self.leaves_outputs:
                    self._left[index] = buffer, planned.shape(index)
                elif not self._is_real(planned, index):  # else the interpreter has the levels already
                    self._fetch(planned, index, buffer)
            return
        for index, buffer in inputs:
            self._fetch(planned, index, buffer)
        plainly(planned)
        for index, _ in outputs:
            self._fill(planned, index)

    def _ran_there(self, planned: PlannedSubgraph) -> bool:
        """Run on the buffers themselves and return true, where one partition is all there is to run."""
        if (whole := planned.whole()) is None:
            return False
        partition, step = whole
        if not isinstance(partition, AsynchronousPartition) or not partition.starts:
            return False
        inputs, outputs = self._storages(planned, step.inputs), self._storages(planned, step.outputs)
        real = [index for index in self._buffers if self._is_real(planned, index)]
        for index in real:
            if index in planned.subgraph.inputs:
                self._fetch(planned, index, self._buffers[index])
        started = partition.start(inputs, outputs)
        started.completion.wait()
        for index in real:
            if index in planned.subgraph.outputs:
                self._fill(planned, index)
        return True

    def refresh(self, tensor: Tensor, planned: PlannedSubgraph) -> None:
        """Copy an output that was left in a buffer. Raises RuntimeError where it cannot be read any more."""
        if tensor.index not in self._left:
            return
        buffer, shape = self._left[tensor.index]
        if (present := planned.shape(tensor.index)) != shape:
            raise RuntimeError(
                f"Tensor {tensor.index} ({tensor.name!r}) is {present}, and was left in a buffer as {shape}; "
                "call invoke, or read the buffer."
            )
        self._fetch(planned, tensor.index, buffer)
        del self._left[tensor.index]

    def forget(self) -> None:
        """Have outputs read from the interpreter's memory again, which another run fills."""
        self._left.clear()

    def check_readable(self, tensor: Tensor) -> None:
        """Raise RuntimeError for an output that was left in its buffer."""
        if tensor.index in self._left:
            raise RuntimeError(
                f"Tensor {tensor.index} ({tensor.name!r}) is in its buffer alone; call "
                f"ensure_tensor_data_is_readable({tensor.index}) first."
            )

    def _is_real(self, planned: PlannedSubgraph, index: int) -> bool:
        return _is_real(planned.subgraph.tensors[index], self._buffers[index])

    def _fetch(self, planned: PlannedSubgraph, index: int, buffer: BoundBuffer) -> None:
        """Copy a buffer of a tensor into the interpreter's memory."""
        array, tensor = _memory(planned, index), planned.subgraph.tensors[index]
        try:
            storage = buffer.storage
        except RuntimeError as error:
            raise RuntimeError(
                f"Tensor {index} ({tensor.name!r}): its buffer is destroyed; set another one, or None, and "
                "call invoke."
            ) from error
        with storage.lock() as memory:
            if not _is_real(tensor, buffer):
                np.copyto(array, _shaped(memory, array.dtype, array))
                return
            scale, zero_point = _affine(tensor)
            np.copyto(array, quantize(_shaped(memory, _REAL, array), scale, zero_point, tensor.type))

    def _fill(self, planned: PlannedSubgraph, index: int) -> None:
        """Copy the interpreter's memory of a tensor into its buffer."""
        array = _memory(planned, index)
        with self._buffers[index].storage.lock() as memory:
            if not self._is_real(planned, index):
                np.copyto(_shaped(memory, array.dtype, array), array)
                return
            scale, zero_point = _affine(planned.subgraph.tensors[index])
            # In int32, since a level less its zero point may leave the type.
            levels = array.astype(np.int32) - zero_point
            np.multiply(levels, np.float32(scale), out=_shaped(memory, _REAL, array), dtype=_REAL)

    def _of(self, indices: Sequence[int]) -> list[tuple[int, BoundBuffer]]:
        return [(index, self._buffers[index]) for index in indices if index in self._buffers]

    def _storages(self, planned: PlannedSubgraph, indices: Sequence[int]) -> list[Storage]:
        """Return the buffers, or the interpreter's own memory where there is none."""
        return [
            self._buffers[index].storage
            if index in self._buffers and not self._is_real(planned, index)
            else HostStorage(_memory(planned, index))
            for index in indices
        ]


def _memory(planned: PlannedSubgraph, index: int) -> Array:
    found = planned.array(index)
    if found is None:
        raise RuntimeError(f"Tensor {index} ({planned.subgraph.tensors[index].name!r}) has no memory.")
    return found


def _is_real(tensor: Tensor, buffer: BoundBuffer) -> bool:
    """Return True for a buffer of real numbers on a tensor of levels that one scale stands for."""
    known = tensor.quantization
    is_affine = known is not None and len(known.scales) == 1 and known.scales[0] > 0
    return buffer.dtype == _REAL and tensor.type in _LEVELS and is_affine


def _affine(tensor: Tensor) -> tuple[float, int]:
    # `_is_real` asked for it.
    assert tensor.quantization is not None
    return tensor.quantization.scales[0], tensor.quantization.zero_points[0]


def _shaped(memory: Array, dtype: np.dtype[Any], like: Array) -> Array:
    """Return the first bytes of memory as an array of this type, of the shape of another."""
    return memory[: like.size * dtype.itemsize].view(dtype).reshape(like.shape)
