"""Tables of 513 points with interpolation, for functions of int16 levels (`LUTPopulate` of `common.h`)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from runtime.ops.spec import Array
from runtime.quantization import round_half_away

_STEPS = 512
_LOW, _HIGH = -32768, 32767


def lookup_table(low: float, high: float, function: Callable[[Array], Array]) -> Array:
    """Levels, on a scale of 2 / 65535, of `function` over [low, high] at 513 points, int64.

    Each point is moved by half the error that interpolation makes in the middle of its step.
    """
    start, step = np.float32(low), np.float32((np.float32(high) - np.float32(low)) / np.float32(_STEPS))
    steps = np.arange(_STEPS, dtype=np.float32)
    out_low = np.float32(2.0 / 65535) * np.float32(_LOW)
    out_high = np.float32(2.0 / 65535) * np.float32(_HIGH)
    factor = np.float32(_HIGH - _LOW + 1) / (out_high - out_low)
    here = _rounded(function(start + steps * step) * factor)
    middle = _rounded(function(start + steps * step + step / np.float32(2)) * factor)
    after = function(start + (steps + np.float32(1)) * step) * factor
    between = _rounded((after + here) / np.float32(2))
    bias = _rounded((between - middle) / np.float32(2))
    last = _rounded(function(np.array([high], np.float32)) * factor)
    return np.asarray(np.clip(np.concatenate([here - bias, last]), _LOW, _HIGH), np.int64)


def _rounded(x: Array) -> Array:
    return np.asarray(round_half_away(x.astype(np.float32)))


def interpolated(levels: Array, table: Array) -> Array:
    """`LUTLookup`: the table at int64 levels of 16 bits, 128 of them between two points."""
    index, offset = 256 + (levels >> 7), levels & 0x7F
    base = table[index]
    return np.asarray(base + (((table[index + 1] - base) * offset + 64) >> 7))
