"""Tables of 513 points with interpolation, for functions of int16 levels (`LUTPopulate` of `common.h`)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from runtime.ops.support.quantization import round_all
from runtime.ops.support.value import Array

_STEPS = 512
"""Intervals between the 513 points of a table of int16 levels (LiteRT's `common.h`)."""

_LOW, _HIGH = -32768, 32767
"""The range of int16."""


def lookup_table(
    low: float,
    high: float,
    function: Callable[[Array], Array],
    out: tuple[float, int] = (2.0 / 65535, 0),
    real: type[np.floating[Any]] = np.float32,
) -> Array:
    """Tabulate `function` over [low, high] at 513 points: int64 levels of scale and zero point `out`.

    Each point is moved by half the error that interpolation makes in the middle of its step. `real` is the
    precision of the computation; LiteRT tabulates in either.
    """
    start, step = real(low), real((real(high) - real(low)) / real(_STEPS))
    steps = np.arange(_STEPS, dtype=real)
    out_low, out_high = (real(out[0]) * real(v - out[1]) for v in (_LOW, _HIGH))
    factor = real(_HIGH - _LOW + 1) / (out_high - out_low)
    with np.errstate(all="ignore"):
        here = round_all(function(start + steps * step) * factor)
        middle = round_all(function(start + steps * step + step / real(2)) * factor)
        after = function(start + (steps + real(1)) * step) * factor
        between = round_all((after + here) / real(2))
        bias = round_all((between - middle) / real(2))
        last = round_all(function(np.array([high], real)) * factor)
        # The last point has no step behind it whose error could be halved.
        points = np.clip(np.concatenate([here - bias, last]), _LOW, _HIGH)
    return np.asarray(np.nan_to_num(points, nan=0), np.int64)


def interpolated(levels: Array, table: Array) -> Array:
    """Look up int64 levels of 16 bits (`LUTLookup` of `common.h`), 128 of them between two points."""
    index, offset = 256 + (levels >> 7), levels & 0x7F
    base = table[index]
    # The reference keeps slopes and results in int16; both wrap where the table is steep.
    slope = (table[index + 1] - base).astype(np.int16).astype(np.int64)
    return np.asarray((base + ((slope * offset + 64) >> 7)).astype(np.int16), np.int64)
