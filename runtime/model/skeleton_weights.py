"""The generator of SKEL0001: integers and two roundings to single precision, so every machine agrees."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Moments = tuple[float, float, float, float]

_SIGMA = {"n": 37837.22, "u": 75674.44}
"""Standard deviation of the integers before scaling: of a sum of four uniform 16-bit digits, and of four
times one digit, which is twice as much. Part of the format."""

_CHUNK = 1 << 20
"""Elements generated at a time. Chosen to bound the memory of the steps; results do not depend on it."""

_WORD = 2**64
"""Words of splitmix64 wrap here."""


def generate(
    stream: tuple[int, int], count: int, code: str, kind: str, moments: Moments, target: memoryview
) -> None:
    """Fill `target`, the bytes of a hole; `stream` is (seed, number of the hole)."""
    seed, k = stream
    mean, std, low, high = moments
    # The multiplier is odd, so that different streams begin at different words.
    base = np.uint64(((seed << 32) + k) * 0xD1342543DE82EF95 % _WORD)
    is_float = code[0] == "f"
    values: NDArray[Any] = np.empty(count, np.float32 if is_float else np.int32)
    scale, offset = np.float32(std / _SIGMA[kind]), np.float32(mean)
    for start in range(0, count, _CHUNK):
        stop = min(count, start + _CHUNK)
        z = _digits(base, start, stop, bell=kind == "n")
        v = np.clip(z.astype(np.float32) * scale + offset, np.float32(low), np.float32(high))
        values[start:stop] = v if is_float else np.rint(v)
    # The extremes occur themselves, so that the generated range is the original's.
    values[count // 3], values[2 * count // 3] = low, high
    if code == "p4":
        # INT4 of a `.tflite` file: two's complement, the even element in the lower half of its byte.
        nibbles = (values & 15).astype(np.uint8)
        np.frombuffer(target, np.uint8)[:] = nibbles[0::2] | (nibbles[1::2] << 4)
    else:
        with np.errstate(over="ignore"):
            np.frombuffer(target, f"<{code}")[:] = values.astype(f"<{code}")


def _digits(base: np.uint64, start: int, stop: int, *, bell: bool) -> NDArray[np.int32]:
    """Return elements `start` to `stop` before scaling, int32 in [-131070, 131070]."""
    with np.errstate(over="ignore"):
        # splitmix64: a counter times the golden ratio's odd fraction of 2^64, then its three mixing steps.
        x = np.arange(start + 1, stop + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + base
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    digits = x.astype("<u8", copy=False).view("<u2").reshape(-1, 4).astype(np.int32)
    # Four digits have the mean 2 * 65535 = 131070, as four times one digit has.
    total = digits.sum(axis=1, dtype=np.int32) if bell else 4 * digits[:, 0]
    return np.asarray(total - 131070, np.int32)
