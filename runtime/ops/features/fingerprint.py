"""FarmHash's `Fingerprint64` (version "na" of github.com/google/farmhash): a stable 64-bit hash of bytes."""

import struct

_MASK = (1 << 64) - 1
"""Cuts Python's integers to 64 bits, where C++'s wrap by themselves."""

_K0 = 0xC3A5C85C97CB3127
"""The first of farmhash's three primes between 2^63 and 2^64; any other value gives another hash."""

_K1 = 0xB492B66FBE98F273
"""The second of these primes."""

_K2 = 0x9AE16A3B2F90404F
"""The third of these primes."""


def fingerprint64(data: bytes) -> int:
    """Return the hash of `data`, in [0, 2^64); each range of lengths has a rule of its own."""
    size = len(data)
    # HashLen0to16, HashLen17to32, HashLen33to64 and Hash64 of `farmhash.cc`, namespace `farmhashna`.
    if size <= 16:
        return _up_to_16(data)
    if size <= 32:
        return _up_to_32(data)
    if size <= 64:
        return _up_to_64(data)
    return _longer(data)


def _at(data: bytes, offset: int) -> int:
    found: int = struct.unpack_from("<Q", data, offset)[0]
    return found


def _rotate(value: int, by: int) -> int:
    return (value >> by | value << (64 - by)) & _MASK


def _fold(value: int) -> int:
    return value ^ value >> 47


def _mix(u: int, v: int, factor: int) -> int:
    a = _fold((u ^ v) * factor & _MASK)
    b = _fold((v ^ a) * factor & _MASK)
    return b * factor & _MASK


def _up_to_16(data: bytes) -> int:
    size = len(data)
    if size >= 8:
        factor = _K2 + size * 2
        a = _at(data, 0) + _K2 & _MASK
        b = _at(data, size - 8)
        c = _rotate(b, 37) * factor + a & _MASK
        d = (_rotate(a, 25) + b) * factor & _MASK
        return _mix(c, d, factor)
    if size >= 4:
        first, last = struct.unpack_from("<I", data, 0)[0], struct.unpack_from("<I", data, size - 4)[0]
        return _mix(size + (first << 3), last, _K2 + size * 2)
    if size:
        y = data[0] + (data[size >> 1] << 8)
        z = size + (data[size - 1] << 2)
        return _fold((y * _K2 ^ z * _K0) & _MASK) * _K2 & _MASK
    return _K2


def _up_to_32(data: bytes) -> int:
    size = len(data)
    factor = _K2 + size * 2
    a, b = _at(data, 0) * _K1 & _MASK, _at(data, 8)
    c, d = _at(data, size - 8) * factor & _MASK, _at(data, size - 16) * _K2 & _MASK
    left = _rotate(a + b & _MASK, 43) + _rotate(c, 30) + d & _MASK
    right = a + _rotate(b + _K2 & _MASK, 18) + c & _MASK
    return _mix(left, right, factor)


def _up_to_64(data: bytes) -> int:
    size = len(data)
    factor = _K2 + size * 2
    a, b = _at(data, 0) * _K2 & _MASK, _at(data, 8)
    c, d = _at(data, size - 8) * factor & _MASK, _at(data, size - 16) * _K2 & _MASK
    y = _rotate(a + b & _MASK, 43) + _rotate(c, 30) + d & _MASK
    z = _mix(y, a + _rotate(b + _K2 & _MASK, 18) + c & _MASK, factor)
    e, f = _at(data, 16) * factor & _MASK, _at(data, 24)
    g = (y + _at(data, size - 32)) * factor & _MASK
    h = (z + _at(data, size - 24)) * factor & _MASK
    left = _rotate(e + f & _MASK, 43) + _rotate(g, 30) + h & _MASK
    right = e + _rotate(f + a & _MASK, 18) + g & _MASK
    return _mix(left, right, factor)


def _weak(data: bytes, offset: int, a: int, b: int) -> tuple[int, int]:
    """Mix the 32 bytes at `offset` with two seeds (`WeakHashLen32WithSeeds`)."""
    w, x, y, z = struct.unpack_from("<4Q", data, offset)
    a = a + w & _MASK
    b = _rotate(b + a + z & _MASK, 21)
    start = a
    a = a + x + y & _MASK
    return a + z & _MASK, b + _rotate(a, 44) + start & _MASK


def _longer(data: bytes) -> int:
    x, y = 81, 81 * _K1 + 113 & _MASK
    z = _fold(y * _K2 + 113 & _MASK) * _K2 & _MASK
    v, w = (0, 0), (0, 0)
    x = x * _K2 + _at(data, 0) & _MASK
    # Whole blocks of 64 bytes but the last; then the last 64 bytes of the data, which may overlap them.
    offset, end = 0, (len(data) - 1) // 64 * 64
    while offset < end:
        x, y, z, v, w = _block(data, offset, (x, y, z, v, w), _K1, 1)
        offset += 64
    factor = _K1 + ((z & 0xFF) << 1) & _MASK
    w = (w[0] + (len(data) - 1 & 63) & _MASK, w[1])
    v = (v[0] + w[0] & _MASK, v[1])
    w = (w[0] + v[0] & _MASK, w[1])
    x, y, z, v, w = _block(data, len(data) - 64, (x, y, z, v, w), factor, 9)
    left = _mix(v[0], w[0], factor) + _fold(y) * _K0 + z & _MASK
    return _mix(left, _mix(v[1], w[1], factor) + x & _MASK, factor)


_State = tuple[int, int, int, tuple[int, int], tuple[int, int]]


def _block(data: bytes, offset: int, state: _State, factor: int, weight: int) -> _State:
    x, y, z, v, w = state
    x = _rotate(x + y + v[0] + _at(data, offset + 8) & _MASK, 37) * factor & _MASK
    y = _rotate(y + v[1] + _at(data, offset + 48) & _MASK, 42) * factor & _MASK
    x ^= w[1] * weight & _MASK
    y = y + v[0] * weight + _at(data, offset + 40) & _MASK
    z = _rotate(z + w[0] & _MASK, 33) * factor & _MASK
    v = _weak(data, offset, v[1] * factor & _MASK, x + w[0] & _MASK)
    w = _weak(data, offset + 32, z + w[1] & _MASK, y + _at(data, offset + 16) & _MASK)
    return z, y, x, v, w
