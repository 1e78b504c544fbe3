"""The memory of one tensor, aligned to 64 bytes, that a `CompiledModel` reads or fills."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from runtime.errors import StatusError
from runtime.event import Event

Array = NDArray[Any]

ALIGNMENT = 64
"""Bytes to which a buffer is aligned: what LiteRT asks of host memory that it shall use without a copy.
Smaller, and LiteRT would refuse such a buffer; larger wastes memory for each of many small ones."""
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
_FLOATS = ("float16", "float32", "complex64", "bfloat16", "float8_e4m3fn", "float8_e5m2")
_NAMES = frozenset(("bool", *_INTEGERS, *_FLOATS))


class TensorBuffer:
    """A block of host memory with a dtype and a shape.

    `event`, where it is set, says when an asynchronous run has filled the buffer: reading waits for it.
    """

    def __init__(self, memory: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._memory: Array | None = memory
        self._dtype = dtype
        self._shape = shape
        self.event: Event | None = None

    @classmethod
    def create_from_host_memory(cls, data_array: Array) -> TensorBuffer:
        """A buffer over the array's own memory; a copy where that is not aligned to 64 bytes.

        Raises ValueError for anything but a C-contiguous array of a dtype that tensors have.
        """
        array = _checked(data_array)
        if not array.flags.c_contiguous:
            raise ValueError("data_array must be C-contiguous for zero-copy host-memory binding")
        memory = array.reshape(-1).view(np.uint8)
        if array.ctypes.data % ALIGNMENT:
            memory = _aligned(array.nbytes)
            memory[:] = array.reshape(-1).view(np.uint8)
        return cls(memory, array.dtype, (array.size,))

    @classmethod
    def create_managed(cls, dtype: DTypeLike, shape: tuple[int, ...]) -> TensorBuffer:
        """A zeroed buffer that holds `shape` elements of `dtype`."""
        kind = np.dtype(dtype)
        return cls(_aligned(math.prod(shape) * kind.itemsize), kind, shape)

    def write(self, data_array: Array) -> None:
        """Copy the array's bytes to the start of the buffer.

        Raises ValueError for anything but an array of a tensor's dtype, RuntimeError for a larger array.
        """
        array = np.ascontiguousarray(_checked(data_array, self._dtype))
        with self.lock("WriteTensorBuffer") as memory:
            if array.nbytes > memory.size:
                raise StatusError("WriteTensorBuffer: source buffer is larger than the tensor buffer")
            memory[: array.nbytes] = array.reshape(-1).view(np.uint8)

    def read(self, num_elements: int, output_dtype: DTypeLike) -> Array:
        """The first `num_elements` as a flat array. Waits for the run that fills the buffer.

        Raises ValueError for a dtype without a tensor type, RuntimeError beyond the buffer's end.
        """
        kind = np.dtype(output_dtype)
        if kind.name not in _NAMES and kind != self._dtype:
            raise ValueError(f"Unsupported dtype: {output_dtype}")
        size = num_elements * kind.itemsize
        with self.lock("ReadTensorToBuffer") as memory:
            if size > memory.size:
                raise StatusError("ReadTensorToBuffer: destination buffer is larger than the tensor buffer")
            return memory[:size].view(kind).copy()

    @contextmanager
    def lock(self, who: str = "Lock") -> Iterator[Array]:
        """The bytes themselves, uint8, once no run is writing them. Raises RuntimeError once destroyed."""
        memory = self._memory
        if memory is None:
            raise StatusError(f"{who}: invalid capsule")
        self.wait()
        yield memory

    @property
    def size(self) -> int:
        """The size in bytes. Raises RuntimeError once destroyed."""
        if self._memory is None:
            raise StatusError("Size: invalid capsule")
        return int(self._memory.size)

    def view(self) -> TensorBuffer:
        """Another buffer over the same memory, without the event."""
        if self._memory is None:
            raise StatusError("Duplicate: invalid capsule")
        return TensorBuffer(self._memory, self._dtype, self._shape)

    def wait(self) -> None:
        """Return when the run that fills the buffer is done. Raises its error where it failed."""
        if self.event is not None:
            self.event.wait()
            self.event = None

    def get_tensor_details(self) -> dict[str, Any]:
        """`dtype` as a name, `shape` as a list. Raises RuntimeError once destroyed."""
        if self._memory is None:
            raise StatusError("GetTensorDetails: invalid capsule")
        return {"dtype": self._dtype.name, "shape": list(self._shape)}

    @property
    def capsule(self) -> object:
        """Stands for the native buffer. Raises ValueError once destroyed."""
        if self._memory is None:
            raise ValueError("TensorBuffer has been destroyed")
        return self

    def destroy(self) -> None:
        """Release the memory; later calls raise."""
        self._memory = None


def _aligned(size: int) -> Array:
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def _checked(array: Any, expected: np.dtype[Any] | None = None) -> Array:
    if not isinstance(array, np.ndarray):
        raise ValueError("data_array must be a NumPy array")
    if array.dtype.name not in _NAMES and (expected is None or array.dtype != expected):
        raise ValueError(f"Unsupported dtype: {array.dtype.name}")
    return array
