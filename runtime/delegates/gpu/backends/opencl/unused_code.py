"""Gives back the memory of code that a driver loads and does not run: PoCL's compiler, for one.

Loading a driver reads large parts of its libraries, LLVM among them, to bind their symbols. These pages hold
what the files hold; the kernel's page cache keeps them, and whoever compiles after all gets them from there.
"""

import ctypes
import sys
from mmap import PAGESIZE
from typing import Any, Final

_LARGE_BYTES: Final = 16 << 20
"""Bytes of code and constants from which on a library is given back. LLVM and clang have 40 to 120 MB, what a
Python process itself runs has less; smaller would give back code that is in use, and read it again."""

_LOADED: Final = 1
"""PT_LOAD of elf.h: a part of the file that is mapped."""

_WRITABLE: Final = 2
"""PF_W of elf.h. A part that may be written to holds addresses that the loader has put there."""

_DONTNEED: Final = 4
"""MADV_DONTNEED of sys/mman.h on Linux."""


class _Part(ctypes.Structure):
    """Elf64_Phdr of elf.h."""

    _fields_ = (
        ("type", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("offset", ctypes.c_uint64),
        ("address", ctypes.c_uint64), ("physical", ctypes.c_uint64), ("file_size", ctypes.c_uint64),
        ("memory_size", ctypes.c_uint64), ("align", ctypes.c_uint64),
    )  # fmt: skip


class _Library(ctypes.Structure):
    """The first fields of dl_phdr_info of link.h, which has these in every version."""

    _fields_ = (
        ("base", ctypes.c_uint64), ("name", ctypes.c_char_p),
        ("parts", ctypes.POINTER(_Part)), ("count", ctypes.c_uint16),
    )  # fmt: skip


_Visitor = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Library), ctypes.c_size_t, ctypes.c_void_p)


def release_unused_code() -> int:
    """Give back the code of every large library of this process, and return how many bytes were mapped.

    It is read again where it is run. 0 on systems other than Linux with 64 bits.
    """
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) < ctypes.sizeof(ctypes.c_uint64):
        return 0
    process = ctypes.CDLL(None)
    ranges: list[tuple[int, int]] = []

    def visit(found: Any, size: int, data: Any) -> int:  # noqa: ARG001  # the signature of the loader
        library = found.contents
        parts = [library.parts[i] for i in range(library.count)]
        constant = [p for p in parts if p.type == _LOADED and not p.flags & _WRITABLE]
        if sum(part.memory_size for part in constant) >= _LARGE_BYTES:
            ranges.extend((library.base + part.address, part.memory_size) for part in constant)
        # Any other value would end the iteration (dl_iterate_phdr(3)).
        return 0

    process.dl_iterate_phdr(_Visitor(visit), None)
    released = 0
    for start, size in ranges:
        # The address for madvise(2) must be the start of a page, and a part may begin within one.
        first = start // PAGESIZE * PAGESIZE
        length = start + size - first
        if not process.madvise(ctypes.c_void_p(first), ctypes.c_size_t(length), _DONTNEED):
            released += length
    return released
