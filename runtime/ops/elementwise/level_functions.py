"""A float function of levels, as LiteRT tabulates it (`LUTPopulate` of `internal/common.h`)."""

from collections.abc import Callable

import numpy as np

from runtime.model.schema import TensorType
from runtime.ops.support import Array, Kernel, OpContext
from runtime.ops.support.blocks import flat_blocks
from runtime.ops.support.levels import every_level, level_table
from runtime.ops.support.lookup import interpolated, lookup_table
from runtime.ops.support.quantization import RANGES, round_all


def through_function(op: OpContext, function: Callable[[Array], Array]) -> Kernel:
    """Return a kernel that looks `function`, float32 to float32, up in a table.

    The table holds every 8-bit level, or 513 points of the int16 range, between which it is interpolated.
    """
    if op.input().type is TensorType.INT16:
        return _through_points(op, function)
    return level_table(op, lambda q: _of_levels(op, q, function))


def _of_levels(op: OpContext, q: Array, function: Callable[[Array], Array]) -> Array:
    in_scale, in_zero = op.scale_and_zero_point(op.input())
    scale, zero = op.scale_and_zero_point(op.output())
    inverse = np.float32(1) / np.float32(scale)
    with np.errstate(all="ignore"):
        real = function(np.float32(in_scale) * (q - in_zero).astype(np.float32))
        levels = round_all(real * inverse) + np.float32(zero)
    # A NaN becomes the least level, as in LiteRT.
    return np.clip(np.nan_to_num(levels, nan=-np.inf), *RANGES[op.output().type]).astype(np.int64)


def _through_points(op: OpContext, function: Callable[[Array], Array]) -> Kernel:
    in_scale, in_zero = op.scale_and_zero_point(op.input())
    scale, zero = op.scale_and_zero_point(op.output())
    low, high = (np.float32(in_scale) * np.float32(v - in_zero) for v in (-32768, 32767))
    points = lookup_table(float(low), float(high), function, (scale, zero))
    # The interpolation too depends on the level alone: 65536 results replace it in every run.
    table = interpolated(every_level(TensorType.INT16), points).astype(np.int16)
    pieces = flat_blocks(op.write(), op.read(0).view(np.uint16))

    def run() -> None:
        for y, index in pieces:
            np.take(table, index, out=y, mode="clip")

    return run
