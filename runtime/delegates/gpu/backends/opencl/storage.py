"""A caller's OpenCL buffers and shared virtual memory as storages of tensors."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.gpu.backends.opencl import cl
from runtime.delegates.gpu.backends.opencl.device import list_devices, mapped_errors
from runtime.delegates.storage import HostStorage, Place, readable_bytes
from runtime.errors import DelegateError


class BufferStorage:
    """A `pyopencl.Buffer`, kept alive by a reference of its own: the caller may release theirs.

    Raises `DelegateError` for anything else.
    """

    def __init__(self, buffer: object) -> None:
        if not isinstance(buffer, cl.Buffer):
            raise DelegateError(
                f"a buffer of OpenCL is a pyopencl.Buffer, not {type(buffer).__name__}; an image's pixels "
                "are a tensor by create_from_cl_image"
            )
        with mapped_errors("taking a buffer of the caller's"):
            own: Any = cl.Buffer.from_int_ptr(buffer.int_ptr, retain=True)
            self.buffer: cl.Buffer = own
            self.context: cl.Context = buffer.context
            self.size: int = int(buffer.size)
            flags = int(buffer.flags)
        self.is_readable: bool = not flags & cl.mem_flags.WRITE_ONLY
        self.is_writable: bool = not flags & cl.mem_flags.READ_ONLY
        self._queue: cl.CommandQueue | None = None
        self._place: Place | None = None

    @property
    def place(self) -> Place:
        """The buffer's place in the process, on a device that works on the host's memory."""
        if self._place is None:
            # Only mapping reveals the address, which stays valid, as such a device never moves the memory.
            with self.lock() as memory:
                address = memory.ctypes.data
            self._place = Place(address, self.size, readable_bytes(address, self.size))
        return self._place

    @contextmanager
    def lock(self) -> Iterator[NDArray[Any]]:
        """Map the buffer into the host's memory for the time of the block."""
        with mapped_errors("mapping a buffer of the caller's"):
            if self._queue is None:
                self._queue = cl.CommandQueue(self.context)
            access: Any = cl.map_flags.READ | cl.map_flags.WRITE if self.is_writable else cl.map_flags.READ
            mapped: Any = cl.enqueue_map_buffer(
                self._queue, self.buffer, access, 0, (self.size,), np.dtype(np.uint8), is_blocking=True
            )[0]
        try:
            yield mapped
        finally:
            with mapped_errors("unmapping a buffer of the caller's"):
                mapped.base.release(self._queue)
                # Unmapping is only enqueued, and others use the buffer in queues of their own from here on.
                self._queue.finish()


class SvmStorage(HostStorage):
    """Shared virtual memory: `pyopencl.SVM`, `SVMAllocation`, or an array that lies in one.

    Raises `DelegateError` for anything else.
    """

    def __init__(self, memory: object) -> None:
        if isinstance(memory, np.ndarray):
            memory = cl.SVM(memory)
        if not isinstance(memory, cl.SVMPointer):
            raise DelegateError(
                "shared virtual memory is a pyopencl.SVM, a pyopencl.SVMAllocation or an array in one, not "
                f"{type(memory).__name__}"
            )
        self.svm: cl.SVMPointer = memory
        content = (ctypes.c_uint8 * int(memory.size or 0)).from_address(memory.svm_ptr)
        super().__init__(np.ctypeslib.as_array(content))


def gl_refusal(what: str) -> str:
    """Why an object of OpenGL cannot be a tensor's memory on this machine."""
    if not cl.have_gl():
        reason = "pyopencl was built without OpenGL"
    elif not any("cl_khr_gl_sharing" in device.extensions.split() for device in list_devices()):
        reason = "no OpenCL device here has cl_khr_gl_sharing"
    else:
        reason = "this delegate does not acquire such objects"
    return f"{what} of OpenGL cannot be shared: {reason}; copy its content into a pyopencl.Buffer"
