"""Bounded reads of a FlatBuffer: every offset is checked, and the whole walk has a budget.

The format is that of the FlatBuffers internals document: a table is a signed offset to its vtable followed by
inline fields; vectors and strings start with their length. Only this module touches bytes.
"""

import struct
from collections.abc import Iterator
from typing import Any, Literal

from runtime.errors import ModelFormatError

MAX_TABLES = 500_000
"""Tables that one walk may visit, whatever the size of the file. Chosen: each becomes a Python object, and
real models have some ten thousand tensors and operators."""

MAX_ELEMENTS = 8_000_000
"""Elements of vectors and strings that one walk may read. Chosen: each may become a Python object; weights
are views of the file and do not count."""

MAX_NAME_BYTES = 1 << 16
"""Bytes of one string. Chosen: names appear in error texts and reports."""

_I32 = struct.Struct("<i")
_U32 = struct.Struct("<I")
_U16 = struct.Struct("<H")
_SCALARS = {code: struct.Struct("<" + code) for code in "?bBhHiIqQf"}


class FlatBuffer:
    """A read-only view of the bytes, and the budget of one walk through them.

    Offsets may be shared, so a small hostile file could describe an enormous tree. The walk may visit no more
    tables and vector elements than a file of this length can hold without sharing, up to fixed ceilings.
    """

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.view = memoryview(data).cast("B")
        self.size = len(self.view)
        # A table has 4 bytes at least, the offset to its vtable.
        self._tables_left = min(MAX_TABLES, 16 + self.size // 4)
        self._elements_left = min(MAX_ELEMENTS, 65536 + 4 * self.size)

    def root(self) -> "Table":
        """Return the root table. Raises `ModelFormatError`."""
        if self.size < 8:
            raise ModelFormatError(f"file: {self.size} bytes are too short for a FlatBuffer")
        return Table(self, self.u32(0, ("model",)), ("model",))

    def identifier(self) -> bytes:
        """Return the file identifier, bytes 4..7."""
        return bytes(self.view[4:8])

    def u32(self, position: int, path: tuple[Any, ...]) -> int:
        """Return the unsigned 32-bit word at `position`. Raises `ModelFormatError` outside the file."""
        self.check(position, 4, path)
        value: int = _U32.unpack_from(self.view, position)[0]
        return value

    def check(self, position: int, size: int, path: tuple[Any, ...]) -> None:
        """Raise `ModelFormatError` unless `[position, position + size)` lies in the file."""
        if position < 0 or size < 0 or size > self.size or position > self.size - size:
            raise ModelFormatError(
                f"{describe(path)}: {size} bytes at offset {position} are outside the {self.size} of the file"
            )

    def charge_table(self, path: tuple[Any, ...]) -> None:
        """Count one visited table. Raises `ModelFormatError` beyond the budget."""
        self._tables_left -= 1
        if self._tables_left < 0:
            raise ModelFormatError(f"{describe(path)}: the file describes more tables than it can hold")

    def charge_elements(self, count: int, path: tuple[Any, ...]) -> None:
        """Count `count` vector elements. Raises `ModelFormatError` beyond the budget."""
        self._elements_left -= count
        if self._elements_left < 0:
            raise ModelFormatError(f"{describe(path)}: the file describes more elements than it can hold")

    def range(self, offset: int, size: int, path: tuple[Any, ...]) -> memoryview:
        """Return a view of bytes at an absolute offset: data that lies behind the FlatBuffer."""
        self.check(offset, size, path)
        return self.view[offset : offset + size]


class Table:
    """One table; fields are read by slot, with the field's name for the error text."""

    __slots__ = ("_buffer", "_fields", "_position", "_size", "path")

    def __init__(self, buffer: FlatBuffer, position: int, path: tuple[Any, ...]) -> None:
        buffer.charge_table(path)
        self._buffer = buffer
        self._position = position
        self.path = path
        buffer.check(position, 4, path)
        vtable = position - _I32.unpack_from(buffer.view, position)[0]
        buffer.check(vtable, 4, path)
        vtable_size = _U16.unpack_from(buffer.view, vtable)[0]
        self._size = _U16.unpack_from(buffer.view, vtable + 2)[0]
        if vtable_size < 4 or vtable_size % 2:
            raise ModelFormatError(f"{describe(path)}: a vtable of {vtable_size} bytes is not valid")
        buffer.check(vtable, vtable_size, path)
        # Checked once here, so that a field has only to lie within the table.
        buffer.check(position, self._size, path)
        count = (vtable_size - 4) // 2
        self._fields = struct.unpack_from(f"<{count}H", buffer.view, vtable + 4)

    def _field(self, slot: int, name: str, size: int) -> int:
        """Return the absolute position of a field of `size` inline bytes, 0 where the field is absent."""
        offset = self._fields[slot] if slot < len(self._fields) else 0
        # 0 also means "absent" to the callers: no field lies at the start of the file.
        if not offset:
            return 0
        if offset < 4 or offset + size > self._size:
            raise ModelFormatError(f"{describe((*self.path, name))}: the field lies outside its table")
        return self._position + int(offset)

    def has(self, slot: int) -> bool:
        """Return whether the field is present."""
        return slot < len(self._fields) and self._fields[slot] != 0

    def scalar(self, slot: int, name: str, code: str, default: Any = 0) -> Any:
        """Return a scalar of struct code `code`, or `default`."""
        packer = _SCALARS[code]
        position = self._field(slot, name, packer.size)
        return packer.unpack_from(self._buffer.view, position)[0] if position else default

    def _target(self, slot: int, name: str) -> int:
        position = self._field(slot, name, 4)
        if not position:
            return 0
        offset = self._buffer.u32(position, (*self.path, name))
        if offset == 0:
            raise ModelFormatError(f"{describe((*self.path, name))}: the offset is null")
        return position + offset

    def _vector(self, slot: int, name: str, item_size: int) -> tuple[int, int]:
        """Return (position of the first element, count), (0, 0) where the vector is absent."""
        position = self._target(slot, name)
        if not position:
            return 0, 0
        count = self._buffer.u32(position, (*self.path, name))
        # The product cannot overflow in Python, so that a count near 2^32 is refused before anything is read.
        self._buffer.check(position + 4, count * item_size, (*self.path, name))
        return position + 4, count

    def string(self, slot: int, name: str) -> str | None:
        """Return a string, None where it is absent. Bytes that are not UTF-8 become escapes."""
        position, count = self._vector(slot, name, 1)
        if not position:
            return None
        if count > MAX_NAME_BYTES:
            raise ModelFormatError(f"{describe((*self.path, name))}: a name of {count} bytes is too long")
        self._buffer.charge_elements(count, (*self.path, name))
        return bytes(self._buffer.view[position : position + count]).decode("utf-8", "backslashreplace")

    def data(self, slot: int, name: str) -> memoryview | None:
        """Return a byte vector as a view into the file, None where it is absent."""
        position, count = self._vector(slot, name, 1)
        return self._buffer.view[position : position + count] if position else None

    def numbers(self, slot: int, name: str, code: str) -> tuple[Any, ...] | None:
        """Return a vector of scalars of struct code `code`, None where it is absent."""
        position, count = self._vector(slot, name, _SCALARS[code].size)
        if not position:
            return None
        self._buffer.charge_elements(count, (*self.path, name))
        return struct.unpack_from(f"<{count}{code}", self._buffer.view, position)

    def index_view(self, slot: int, name: str, code: Literal["i", "H", "B"]) -> memoryview | None:
        """Return a vector of integers as a view into the file, None where it is absent.

        Unlike `numbers` it makes no Python object for each: index vectors of sparse tensors are long.
        """
        size = _SCALARS[code].size
        position, count = self._vector(slot, name, size)
        if not position:
            return None
        self._buffer.charge_elements(count, (*self.path, name))
        return self._buffer.view[position : position + count * size].cast(code)

    def table(self, slot: int, name: str) -> "Table | None":
        """Return a table, None where it is absent."""
        position = self._target(slot, name)
        return Table(self._buffer, position, (*self.path, name)) if position else None

    def tables(self, slot: int, name: str) -> "Iterator[Table]":
        """Yield the tables of a vector, one at a time."""
        position, count = self._vector(slot, name, 4)
        for i in range(count):
            path = (*self.path, name, i)
            here = position + 4 * i
            yield Table(self._buffer, here + self._buffer.u32(here, path), path)

    def count(self, slot: int, name: str) -> int | None:
        """Return the length of a vector of tables, None where it is absent."""
        position, count = self._vector(slot, name, 4)
        return count if position else None


def describe(path: tuple[Any, ...]) -> str:
    """Return a path as error texts show it: `model.subgraphs[0].operators[7].inputs`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
