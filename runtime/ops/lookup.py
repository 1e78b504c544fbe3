"""Tables of 513 points with interpolation, for functions of int16 levels (`LUTPopulate` of `common.h`)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from runtime.ops.spec import Array
from runtime.quantization import round_all

_STEPS = 512
_LOW, _HIGH = -32768, 32767


def lookup_table(
    low: float, high: float, function: Callable[[Array], Array], out: tuple[float, int] = (2.0 / 65535, 0)
) -> Array:
    """Levels of scale and zero point `out` of `function` over [low, high] at 513 points, int64.

    Each point is moved by half the error that interpolation makes in the middle of its step.
    """
    start, step = np.float32(low), np.float32((np.float32(high) - np.float32(low)) / np.float32(_STEPS))
    steps = np.arange(_STEPS, dtype=np.float32)
    out_low, out_high = (np.float32(out[0]) * np.float32(v - out[1]) for v in (_LOW, _HIGH))
    factor = np.float32(_HIGH - _LOW + 1) / (out_high - out_low)
    with np.errstate(all="ignore"):
        here = _rounded(function(start + steps * step) * factor)
        middle = _rounded(function(start + steps * step + step / np.float32(2)) * factor)
        after = function(start + (steps + np.float32(1)) * step) * factor
        between = _rounded((after + here) / np.float32(2))
        bias = _rounded((between - middle) / np.float32(2))
        last = _rounded(function(np.array([high], np.float32)) * factor)
        points = np.clip(np.concatenate([here - bias, last]), _LOW, _HIGH)
    return np.asarray(np.nan_to_num(points, nan=0), np.int64)


def _rounded(x: Array) -> Array:
    return round_all(x.astype(np.float32))


def interpolated(levels: Array, table: Array) -> Array:
    """`LUTLookup`: the table at int64 levels of 16 bits, 128 of them between two points; slopes wrap."""
    index, offset = 256 + (levels >> 7), levels & 0x7F
    base = table[index]
    slope = (table[index + 1] - base).astype(np.int16).astype(np.int64)
    return np.asarray((base + ((slope * offset + 64) >> 7)).astype(np.int16), np.int64)
