"""Writes fields of protocol buffers, which LiteRT's tools give their results in."""

import struct
from collections.abc import Iterable

_VARINT, _EIGHT_BYTES, _MESSAGE, _FOUR_BYTES = 0, 1, 2, 5
"""Wire types of protocol buffers."""


def integer(number: int, value: int) -> bytes:
    """Return a field that holds an integer of at least 0."""
    return _key(number, _VARINT) + _varint(value)


def integers(number: int, values: Iterable[int]) -> bytes:
    """Return a field that holds integers of at least 0, packed."""
    return message(number, b"".join(map(_varint, values)))


def real32(number: int, value: float) -> bytes:
    """Return a field that holds a float32."""
    return _key(number, _FOUR_BYTES) + struct.pack("<f", value)


def real64(number: int, value: float) -> bytes:
    """Return a field that holds a float64."""
    return _key(number, _EIGHT_BYTES) + struct.pack("<d", value)


def message(number: int, content: bytes) -> bytes:
    """Return a field that holds a message, or text in UTF-8."""
    return _key(number, _MESSAGE) + _varint(len(content)) + content


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    """Return an integer of at least 0, seven bits to a byte, the lowest first."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*parts, value))
