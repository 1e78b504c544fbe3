"""FlexBuffers, bounded: custom options and composite attributes as plain Python values.

The format is that of https://flatbuffers.dev/flexbuffers: values of 1 to 8 bytes, little-endian, offsets that
point backwards. Every offset is checked against the buffer, depth and number of values are limited.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any

from runtime.errors import ModelFormatError

MAX_DEPTH = 32
"""Nested containers of one FlexBuffer. Chosen: options of operators nest a few deep, and recursion stays far
below Python's limit."""

MAX_VALUES = 65536
"""Values of one FlexBuffer. Chosen: offsets may be shared, by which a few bytes could describe any number."""

_INT, _UINT, _FLOAT, _KEY, _STRING = 1, 2, 3, 4, 5
_INDIRECT_INT, _INDIRECT_UINT, _INDIRECT_FLOAT, _MAP, _VECTOR = 6, 7, 8, 9, 10
_BLOB, _BOOL, _VECTOR_BOOL = 25, 26, 36
_CODES: Mapping[int, str] = {_INT: "bhiq", _UINT: "BHIQ", _FLOAT: " efd", _BOOL: "BHIQ"}
_TYPED = {11: _INT, 12: _UINT, 13: _FLOAT, 14: _KEY, _VECTOR_BOOL: _BOOL}
"""The type of the elements of each type of typed vector (`flexbuffers.h`)."""


def read_map(data: bytes) -> dict[str, Any]:
    """Return the root of a FlexBuffer, which must be a map. Raises `ModelFormatError` otherwise."""
    if len(data) < 3:
        raise ModelFormatError(f"options: {len(data)} bytes are not a FlexBuffer")
    reader = _Reader(data)
    # The end of the buffer is the root: its value, its type, and the width of the value in bytes.
    width, packed = data[-1], data[-2]
    if width not in (1, 2, 4, 8):
        raise ModelFormatError(f"options: a FlexBuffer root of {width} bytes")
    root = reader.value(len(data) - 2 - width, width, packed, 0)
    if not isinstance(root, dict):
        raise ModelFormatError("options: the FlexBuffer's root is not a map")
    return root


def number(options: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """Return the number under a name. Raises `ModelFormatError` where there is none, nor a default."""
    value = options.get(name, default)
    if not isinstance(value, int | float):
        raise ModelFormatError(f"option {name} is {value!r}, not a number")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = MAX_VALUES

    def value(self, at: int, width: int, packed: int, depth: int) -> Any:
        """Return the value whose inline part is `width` bytes at `at`; `packed` is its type byte."""
        self._left -= 1
        if depth > MAX_DEPTH or self._left < 0:
            raise ModelFormatError("options: the FlexBuffer is too deep or has too many values")
        # A type byte: the type in the upper six bits, the binary logarithm of what it refers to in the lower
        # two.
        kind, child = packed >> 2, 1 << (packed & 3)
        if kind == 0:
            return None
        if kind in _CODES:
            found = self._number(at, width, kind)
            return bool(found) if kind == _BOOL else found
        target = at - int(self._number(at, width, _UINT))
        indirect = {_INDIRECT_INT: _INT, _INDIRECT_UINT: _UINT, _INDIRECT_FLOAT: _FLOAT}
        if kind in indirect:
            return self._number(target, child, indirect[kind])
        return self._container(target, child, kind, depth)

    def _container(self, at: int, width: int, kind: int, depth: int) -> Any:
        if kind == _KEY:
            return self._key(at)
        if kind == _STRING:
            return self._bytes(at, self._size(at, width)).decode("utf-8", "replace")
        if kind == _BLOB:
            return self._bytes(at, self._size(at, width))
        if kind == _MAP:
            return self._map(at, width, depth)
        if kind == _VECTOR:
            # Type bytes of the elements lie behind all elements.
            size = self._size(at, width)
            return self._vector(at, width, size, lambda i: self._byte(at + size * width + i), depth)
        if kind in _TYPED:
            packed = _TYPED[kind] << 2
            return self._vector(at, width, self._size(at, width), lambda _i: packed, depth)
        # Vectors of two, three and four numbers, each of int, uint and float; they have no size in front.
        if 16 <= kind <= 24:
            packed = (_INT, _UINT, _FLOAT)[(kind - 16) % 3] << 2
            return self._vector(at, width, 2 + (kind - 16) // 3, lambda _i: packed, depth)
        raise ModelFormatError(f"options: FlexBuffer type {kind} is unknown")

    def _map(self, at: int, width: int, depth: int) -> dict[str, Any]:
        size = self._size(at, width)
        # In front of a map's values: the offset of its keys, their width, and the size, each `width` bytes
        # wide.
        keys = at - 3 * width - int(self._number(at - 3 * width, width, _UINT))
        key_width = int(self._number(at - 2 * width, width, _UINT))
        if key_width not in (1, 2, 4, 8):
            raise ModelFormatError(f"options: FlexBuffer keys of {key_width} bytes")
        found: dict[str, Any] = {}
        for i in range(size):
            place = keys + i * key_width
            name = self._key(place - int(self._number(place, key_width, _UINT)))
            packed = self._byte(at + size * width + i)
            found[name] = self.value(at + i * width, width, packed, depth + 1)
        return found

    def _vector(self, at: int, width: int, size: int, packed: Callable[[int], int], depth: int) -> list[Any]:
        return [self.value(at + i * width, width, packed(i), depth + 1) for i in range(size)]

    def _size(self, at: int, width: int) -> int:
        # In front of the first element, and bounded before anything of this size is made.
        size = int(self._number(at - width, width, _UINT))
        if size > len(self._data):
            raise ModelFormatError(f"options: a FlexBuffer vector of {size} in {len(self._data)} bytes")
        return size

    def _number(self, at: int, width: int, kind: int) -> int | float:
        code = _CODES[kind][width.bit_length() - 1]
        if code == " ":
            raise ModelFormatError("options: a FlexBuffer float of one byte")
        (found,) = struct.unpack("<" + code, self._bytes(at, width))
        number: int | float = found
        return number

    def _byte(self, at: int) -> int:
        return self._bytes(at, 1)[0]

    def _bytes(self, at: int, size: int) -> bytes:
        if at < 0 or size < 0 or at + size > len(self._data):
            raise ModelFormatError(f"options: the FlexBuffer refers to byte {at} of {len(self._data)}")
        return self._data[at : at + size]

    def _key(self, at: int) -> str:
        self._bytes(at, 1)
        end = self._data.find(b"\0", at)
        if end < 0:
            raise ModelFormatError("options: a FlexBuffer key without an end")
        return self._data[at:end].decode("utf-8", "replace")
