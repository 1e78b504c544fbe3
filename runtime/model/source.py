"""The bytes that a model was read from, and the file that they lie in."""

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_CHUNK: Final = 32 << 20
"""Bytes that are hashed before their pages are released: what of a mapped model is in memory at a time. A
multiple of the page size; smaller asks the kernel more often, larger takes more memory."""


@dataclass(frozen=True, slots=True)
class ModelBytes:
    """The bytes that a model was read from.

    `file` identifies the state of the file under them: device, inode, size, and the times of its last change
    in nanoseconds. It is empty where there is none.
    """

    content: memoryview
    file: tuple[int, ...] = ()

    def release(self) -> None:
        """Give up the memory of a mapped file; what is read again comes from the page cache."""
        if isinstance(self.content.obj, mmap.mmap):
            self.content.obj.madvise(mmap.MADV_DONTNEED)

    def chunks(self) -> Iterator[memoryview]:
        """Yield the bytes in order. The memory of a mapped file is released behind them."""
        for start in range(0, len(self.content), _CHUNK):
            yield self.content[start : start + _CHUNK]
            self.release()


def file_state(descriptor: int) -> tuple[int, ...]:
    """Return `ModelBytes.file` for an open file: any write changes it, also one that keeps the times."""
    found = os.fstat(descriptor)
    # The time of the last change of status too: unlike that of the last write, no call can set it back.
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
