"""Reads a zip without holding its directory: `zipfile` keeps 600 bytes of every member.

The layout is that of PKWARE's APPNOTE.TXT, sections 4.3.7 to 4.3.16.
"""

from __future__ import annotations

import os
import struct
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile

_LONGEST_END: Final = 22 + 65_535
"""Bytes of the record at the end of an archive: its fields, and the longest comment."""

_IN_EXTRA: Final = 0xFFFFFFFF
"""A size or an offset that does not fit into 32 bits, and stands in the member's extra field."""

FIELDS: Final = 4
"""Numbers that are held of a member: CRC, method and flags in one; packed and whole size; offset."""


def names_of_zip(path: Path, spans: array[int]) -> Iterator[str]:
    """Yield the names of files and append the `FIELDS` of each. Raises `BadZipFile`, `OSError`."""
    with path.open("rb") as file:
        first, left, shift = _directory(file)
        file.seek(first)
        while left > 0:
            head = file.read(46)
            if len(head) < 46 or head[:4] != b"PK\1\2":
                raise BadZipFile("its directory is damaged")
            flags, method = struct.unpack("<2H", head[8:12])
            # CRC and sizes, then the lengths of name, extra field and comment, which follow the header
            # (4.3.12).
            crc, packed, size, *lengths = struct.unpack("<3L3H", head[16:34])
            name, extra = file.read(lengths[0]), file.read(lengths[1])
            file.seek(lengths[2], os.SEEK_CUR)
            left -= len(head) + sum(lengths)
            size, packed, offset = _wide(extra, [size, packed, *struct.unpack("<L", head[42:46])])
            if offset + shift > first or max(packed, size) >> 63:
                raise BadZipFile("its directory is damaged")
            if not name.endswith(b"/"):
                spans.extend((crc | method << 32 | flags << 48, packed, size, offset + shift))
                # Bit 11 says that the name is in UTF-8; else it is in the character set of the first PCs.
                yield name.decode("utf-8" if flags & 0x800 else "cp437", "replace")


def read_member(path: Path, fields: array[int]) -> bytes:
    """Return the bytes of a member, checked by its CRC. Raises `BadZipFile`, `zlib.error`, `OSError`."""
    first, packed, size, offset = fields
    crc, method, flags = first & 0xFFFF_FFFF, first >> 32 & 0xFFFF, first >> 48
    with path.open("rb") as file:
        file.seek(offset)
        head = file.read(30)
        if len(head) < 30 or head[:4] != b"PK\3\4":
            raise BadZipFile("there is no member where the directory says")
        file.seek(sum(struct.unpack("<2H", head[26:30])), os.SEEK_CUR)
        # What cannot be packed grows by less than a thousandth in deflate: more is not read, whatever it is
        # said to be.
        content = file.read(min(packed, size + size // 1000 + 1024))
    if flags & 1:
        raise BadZipFile("it is encrypted")
    if method == ZIP_DEFLATED:
        # One byte more than it should have would show in its length.
        content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(content, size + 1)
    elif method != ZIP_STORED:
        raise BadZipFile(f"it is packed by method {method}; stored and deflated members are read")
    if len(content) != size or zlib.crc32(content) != crc:
        raise BadZipFile("its bytes are not those of the directory's CRC-32")
    return content


def _directory(file: BinaryIO) -> tuple[int, int, int]:
    """Return where the directory begins, its bytes, and what stands in front of the archive."""
    end = file.seek(0, os.SEEK_END)
    begin = max(0, end - _LONGEST_END)
    file.seek(begin)
    tail = file.read()
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) - at < 22:
        raise BadZipFile("it has no directory")
    length, start = struct.unpack("<2L", tail[at + 12 : at + 20])
    end = begin + at
    # The 20 bytes in front locate the record of ZIP64, if there is one (4.3.15): its offset is the second
    # field.
    if tail[max(0, at - 20) : at].startswith(b"PK\6\7"):
        (end,) = struct.unpack("<Q", tail[at - 12 : at - 4])
        file.seek(end)
        record = file.read(56)
        if len(record) < 56 or record[:4] != b"PK\6\6":
            raise BadZipFile("its directory is damaged")
        length, start = struct.unpack("<2Q", record[40:56])
    if length + start > end:
        raise BadZipFile("its directory is damaged")
    return end - length, length, end - length - start


def _wide(extra: bytes, values: list[int]) -> list[int]:
    """Return whole size, packed size and offset, each that does not fit from the extra field of 64 bits."""
    place = 0
    while _IN_EXTRA in values and place + 4 <= len(extra):
        kind, length = struct.unpack("<2H", extra[place : place + 4])
        field = extra[place + 4 : place + 4 + length]
        place += 4 + length
        if kind == 1:
            wide = iter(struct.unpack(f"<{len(field) // 8}Q", field[: len(field) // 8 * 8]))
            return [next(wide, value) if value == _IN_EXTRA else value for value in values]
    return values
