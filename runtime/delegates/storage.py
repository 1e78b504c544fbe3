"""Memory of tensors that belongs to a caller: a delegate reads and writes it in place, or copies it.

`Storage` is the protocol; host memory is here, and a backend of a delegate has storages of its own.
"""

import mmap
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

ROOM = 512
"""Bytes behind the tensor in memory that is made for it. Kernels write whole vectors of 16 elements, up to
120 bytes behind the last one, and read up to 256 bytes further. Smaller, and such memory would be copied;
larger wastes it for each of many small tensors."""


class Storage(Protocol):
    """A block of memory that holds one tensor's elements, dense, from its start."""

    @property
    def size(self) -> int:
        """The bytes that the caller gives."""

    def lock(self) -> AbstractContextManager[Array]:
        """Return the bytes as a host array of uint8, which is the memory itself or is written back to it."""


@dataclass(frozen=True, slots=True)
class Place:
    """The address of memory in the process, and the bytes from there that may be overwritten, and be read.

    Kernels work with whole vectors, the last of which may end behind the tensor.
    """

    address: int
    writable: int
    readable: int


class HostStorage:
    """Host memory: a C-contiguous array, of which `room` bytes behind the end may be overwritten."""

    def __init__(self, memory: Array, room: int = 0) -> None:
        self.memory: NDArray[np.uint8] = memory.reshape(-1).view(np.uint8)
        self.place = Place(self.memory.ctypes.data, self.memory.size + room, _readable(self.memory, room))

    @property
    def size(self) -> int:
        """The bytes of the array."""
        return int(self.memory.size)

    @classmethod
    def managed(cls, size: int) -> "HostStorage":
        """Zeroed memory of `size` bytes that begins on a page of its own and has `ROOM` behind it."""
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        # Pages of its own lie where large blocks do, within the reach of a device's offsets from there.
        pages = mmap.mmap(-1, size + ROOM, flags=private)
        return cls(np.frombuffer(pages, np.uint8, size), ROOM)

    @contextmanager
    def lock(self) -> Iterator[Array]:
        """Yield the memory itself."""
        yield self.memory


def readable_bytes(address: int, size: int) -> int:
    """Bytes that can be read from an address: to the end of the page on which the last of `size` bytes lies.

    What lies on the next page may be nobody's, and reading it would end the process.
    """
    return -(-(address + size) // mmap.PAGESIZE) * mmap.PAGESIZE - address


def _readable(memory: Array, room: int) -> int:
    """Return `readable_bytes`, or the bytes to the end of the array of which this one is a part."""
    owner: Array = memory
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    address = memory.ctypes.data
    # Where elements lie with gaps, or backwards, the memory does not end `nbytes` behind the first.
    end = owner.ctypes.data + owner.nbytes if owner.flags.c_contiguous else 0
    return max(end - address, readable_bytes(address, memory.size + room))
