"""The memory of one tensor that a `CompiledModel` reads or fills: the host's, or a caller's on a device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

from runtime.api.event import Event
from runtime.delegates.storage import HostStorage, Storage
from runtime.errors import UNSUPPORTED, StatusError

Array = NDArray[Any]

ALIGNMENT = 64
"""Bytes to which a buffer is aligned: what LiteRT asks of host memory that it shall use without a copy.
Smaller, and LiteRT would refuse such a buffer; larger wastes memory for each of many small ones."""
HOST_MEMORY, OPENCL_BUFFER = 1, 10
"""LiteRT's numbers of buffer types (`LiteRtTensorBufferType`)."""
_DLPACK_CPU = 1
"""DLPack's number of the host's memory (`kDLCPU`)."""
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
_FLOATS = ("float16", "float32", "complex64", "bfloat16", "float8_e4m3fn", "float8_e5m2")
_NAMES = frozenset(("bool", *_INTEGERS, *_FLOATS))


class TensorBuffer:
    """Memory with a dtype and a shape.

    `event`, where it is set, says when an asynchronous run has filled the buffer: reading waits for it. Who
    writes to a buffer that a run still reads waits for the run's event first.
    """

    def __init__(self, storage: Storage, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._storage: Storage | None = storage
        self._dtype = dtype
        self._shape = shape
        self._event: Event | None = None
        self.filling: Event | None = None
        """The run that fills the buffer, known after another one has taken over its event. An event that the
        caller has set is not kept so: with that one, the caller writes here after starting the run."""
        self.readers: list[Event] = []
        """The started runs that read the buffer: a run that fills it begins behind the end of them all."""

    @classmethod
    def create_from_host_memory(cls, data_array: Array) -> TensorBuffer:
        """Create a buffer over the array's own memory; a copy if that is not aligned to 64 bytes.

        Raises ValueError for anything but a C-contiguous array of a dtype that tensors have.
        """
        array = _checked(data_array)
        if not array.flags.c_contiguous:
            raise ValueError("data_array must be C-contiguous for zero-copy host-memory binding")
        storage = HostStorage(array)
        if storage.place.address % ALIGNMENT:
            storage = HostStorage.managed(array.nbytes)
            storage.memory[:] = array.reshape(-1).view(np.uint8)
        return cls(storage, array.dtype, (array.size,))

    @classmethod
    def create_managed(cls, dtype: DTypeLike, shape: tuple[int, ...]) -> TensorBuffer:
        """Create a zeroed buffer of `shape` elements of `dtype`, with room for a device's vectors behind."""
        kind = np.dtype(dtype)
        return cls(HostStorage.managed(math.prod(shape) * kind.itemsize), kind, shape)

    @classmethod
    def create_from_cl_buffer(cls, buffer: object, dtype: DTypeLike, shape: tuple[int, ...]) -> TensorBuffer:
        """Create a buffer over a `pyopencl.Buffer`, which holds `shape` elements of `dtype` at its start.

        The model must run in its context (`CompiledModel.opencl_context`). Reading and writing here map it.

        Raises RuntimeError for anything else, or for one that is too small.
        """
        from runtime.delegates.gpu.backends.opencl.storage import BufferStorage  # noqa: PLC0415  # on demand

        return cls._over(BufferStorage(buffer), dtype, shape)

    @classmethod
    def create_from_cl_image(cls, image: Any, channels: int = 4) -> TensorBuffer:
        """Create a buffer `[1, H, W, channels]` with the first channels of each pixel of a `pyopencl.Image`.

        The image is two-dimensional, in RGBA, of FLOAT, HALF_FLOAT (float16), UNORM_INT8 or UNSIGNED_INT8
        (uint8, the levels). The device copies the pixels, for which runs wait; `copy_from_cl_image` takes the
        next picture. Raises RuntimeError for anything else.
        """
        from runtime.delegates.gpu.backends.opencl import images  # noqa: PLC0415  # on demand

        dtype, shape = images.tensor_of(image, channels)
        made = cls(images.buffer_for(image, math.prod(shape) * dtype.itemsize), dtype, shape)
        made.copy_from_cl_image(image)
        return made

    def copy_from_cl_image(self, image: Any) -> None:
        """Have the device copy another picture into a buffer of `create_from_cl_image`, and set `event`.

        As with `write`, no run may still be reading the buffer. Raises RuntimeError for a picture of another
        size, type or context, and for another buffer.
        """
        from runtime.delegates.gpu.backends.opencl import images, storage  # noqa: PLC0415  # on demand

        target = self._existing("CopyFromImage")
        found = images.tensor_of(image, self._shape[-1] if self._shape else 0)
        if not isinstance(target, storage.BufferStorage) or found != (self._dtype, self._shape):
            raise StatusError(
                f"CopyFromImage: the picture is {found[0].name} {found[1]}, the buffer {self._dtype.name} "
                f"{self._shape}; make one for it with create_from_cl_image"
            )
        self.be_filled_by(Event.create_from_opencl_event(images.copy_picture(image, target, self._shape[-1])))

    @classmethod
    def create_from_svm(cls, memory: object, dtype: DTypeLike, shape: tuple[int, ...]) -> TensorBuffer:
        """Create a buffer over shared virtual memory: a `pyopencl.SVM`, or an array in one.

        Raises RuntimeError for anything else, or for one that is too small.
        """
        from runtime.delegates.gpu.backends.opencl.storage import SvmStorage  # noqa: PLC0415  # on demand

        return cls._over(SvmStorage(memory), dtype, shape)

    @classmethod
    def _over(cls, storage: Storage, dtype: DTypeLike, shape: tuple[int, ...]) -> TensorBuffer:
        kind = np.dtype(dtype)
        needed = math.prod(shape) * kind.itemsize
        if storage.size < needed:
            raise StatusError(
                f"{shape} elements of {kind.name} take {needed} bytes, the buffer has {storage.size}; "
                "make it larger"
            )
        return cls(storage, kind, shape)

    @classmethod
    def create_from_gl_buffer(cls, *_: object, **__: object) -> NoReturn:
        """Raise RuntimeError with the reason why OpenGL's objects cannot be shared on this machine."""
        raise StatusError(_gl("a buffer"), UNSUPPORTED)

    @classmethod
    def create_from_gl_texture(cls, *_: object, **__: object) -> NoReturn:
        """Raise RuntimeError with the reason why OpenGL's objects cannot be shared on this machine."""
        raise StatusError(_gl("a texture"), UNSUPPORTED)

    @classmethod
    def from_dlpack(cls, tensor: Any) -> TensorBuffer:
        """Create a buffer over the memory of another library's tensor; a copy if that is not aligned.

        Raises ValueError as `create_from_host_memory`, BufferError for memory of another device.
        """
        device, number = tensor.__dlpack_device__()
        if int(device) != _DLPACK_CPU:
            raise BufferError(
                f"the tensor lies on DLPack's device type {int(device)}, number {number}; move it to the "
                "host, or give its pyopencl.Buffer to create_from_cl_buffer"
            )
        array = np.from_dlpack(tensor)
        buffer = cls.create_from_host_memory(array)
        # Unlike LiteRT's host memory, which is flat, a tensor of another library has a shape to keep.
        buffer._shape = array.shape
        return buffer

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's type and number of the device: the host's memory. Raises BufferError for OpenCL's."""
        if not isinstance(self.storage, HostStorage):
            raise BufferError("a pyopencl.Buffer has no place in DLPack here: use read, or lock")
        return _DLPACK_CPU, 0

    def __dlpack__(self, **how: Any) -> Any:
        """Return the memory itself, once no run is writing it, as DLPack's capsule.

        Raises BufferError for memory of OpenCL, or a dtype that DLPack cannot name.
        """
        self.__dlpack_device__()
        with self.lock("DLPack") as memory:
            size = math.prod(self._shape) * self._dtype.itemsize
            return memory[:size].view(self._dtype).reshape(self._shape).__dlpack__(**how)

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
        """Return the first `num_elements` as a flat array. Waits for the run that fills the buffer.

        Raises ValueError for a dtype without a tensor type, RuntimeError beyond the buffer's end.
        """
        kind = np.dtype(output_dtype)
        # The buffer's own type may be one that the names lack: float64 of a model's tensor.
        if kind.name not in _NAMES and kind != self._dtype:
            raise ValueError(f"Unsupported dtype: {output_dtype}")
        size = num_elements * kind.itemsize
        with self.lock("ReadTensorToBuffer") as memory:
            if size > memory.size:
                raise StatusError("ReadTensorToBuffer: destination buffer is larger than the tensor buffer")
            return memory[:size].view(kind).copy()

    @contextmanager
    def lock(self, who: str = "Lock") -> Iterator[Array]:
        """Yield the bytes, uint8, once no run is writing them. Raises RuntimeError once destroyed."""
        storage = self._existing(who)
        self.wait()
        with storage.lock() as memory:
            yield memory

    def _existing(self, who: str) -> Storage:
        if self._storage is None:
            raise StatusError(f"{who}: invalid capsule")
        return self._storage

    @property
    def storage(self) -> Storage:
        """The memory, as a delegate takes it. Raises RuntimeError once destroyed."""
        return self._existing("Storage")

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of an element."""
        return self._dtype

    @property
    def buffer_type(self) -> int:
        """LiteRT's number of the kind of memory: `HOST_MEMORY` or `OPENCL_BUFFER`."""
        return HOST_MEMORY if isinstance(self.storage, HostStorage) else OPENCL_BUFFER

    @property
    def size(self) -> int:
        """The size in bytes. Raises RuntimeError once destroyed."""
        return self._existing("Size").size

    def view(self) -> TensorBuffer:
        """Another buffer over the same memory, without the event."""
        return TensorBuffer(self._existing("Duplicate"), self._dtype, self._shape)

    @property
    def event(self) -> Event | None:
        """The event that the next run with the buffer as an input takes over."""
        return self._event

    @event.setter
    def event(self, event: Event | None) -> None:
        self._event, self.filling = event, None

    def be_filled_by(self, event: Event) -> None:
        """Have whoever reads the buffer wait for a run that was started."""
        self._event, self.filling, self.readers = event, event, []

    def be_read_by(self, event: Event) -> None:
        """Have a run that fills the buffer begin behind one that was started and takes over its event."""
        self._event = None
        # Those that have ended are let go: a buffer of weights may have any number of readers and no filling.
        self.readers = [*(reader for reader in self.readers if not reader.is_signaled()), event]

    def wait(self) -> None:
        """Return when the run that fills the buffer is done. Raises its error where it failed."""
        if event := self._event or self.filling:
            # An event whose run failed is kept, so that every later reading raises as well.
            event.wait()
            self.event = None

    def get_tensor_details(self) -> dict[str, Any]:
        """`dtype` as a name, `shape` as a list. Raises RuntimeError once destroyed."""
        self._existing("GetTensorDetails")
        return {"dtype": self._dtype.name, "shape": list(self._shape)}

    @property
    def capsule(self) -> object:
        """Stands for the native buffer. Raises ValueError once destroyed."""
        if self._storage is None:
            raise ValueError("TensorBuffer has been destroyed")
        return self

    def destroy(self) -> None:
        """Release the memory; later calls raise."""
        self._storage = None


def _gl(what: str) -> str:
    from runtime.delegates.gpu.backends.opencl.storage import gl_refusal  # noqa: PLC0415  # on demand

    return gl_refusal(what)


def _checked(array: Any, expected: np.dtype[Any] | None = None) -> Array:
    if not isinstance(array, np.ndarray):
        raise ValueError("data_array must be a NumPy array")
    if array.dtype.name not in _NAMES and (expected is None or array.dtype != expected):
        raise ValueError(f"Unsupported dtype: {array.dtype.name}")
    return array
