"""CONV_3D, float32: x [N, D, H, W, Ci], filter [kd, kh, kw, Ci, Co], bias [Co] -> [N, Do, Ho, Wo, Co].

Windows of some output rows are gathered into columns, then one GEMM (`reference/conv3d.h`).
"""

from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import as_strided

from runtime.ops.matmul.conv import check_bias, float_end
from runtime.ops.support import Array, Kernel, Op, OpContext, Shape, TensorType, operator
from runtime.ops.support.shapes import Window, require_rank, window

_AXES = ("d", "h", "w")
_COLUMN_BYTES = 1 << 20
"""Bytes of gathered columns for one GEMM. Chosen to stay in a second-level cache between gathering and
product; less makes the matrices too small for BLAS to be efficient."""


def strides(op: OpContext) -> tuple[int, ...]:
    """Return the strides of depth, height and width."""
    return tuple(op.option(f"stride_{axis}") for axis in _AXES)


def dilations(op: OpContext) -> tuple[int, ...]:
    """Return the dilations of depth, height and width."""
    return tuple(op.option(f"dilation_{axis}_factor") for axis in _AXES)


def _windows(op: OpContext, sizes: Shape, filter_sizes: Shape) -> list[Window]:
    padding = op.option("padding")
    each = zip(sizes, filter_sizes, strides(op), dilations(op), strict=True)
    return [window(op, padding, *one) for one in each]


def volume(op: OpContext, i: int) -> Shape:
    """Return [N, D, H, W, C] of input `i`. Raises `ShapeError` for a volume without cells."""
    shape = require_rank(op, i, 5)
    if min(shape[1:]) < 1:
        raise op.error(f"input {i} of shape {list(shape)} has no cells")
    return shape


def conv_3d_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return [N, Do, Ho, Wo, Co]. Raises `ShapeError` where filter and input differ in channels."""
    n, *sizes, channels = volume(op, 0)
    *filter_sizes, depth, out_channels = require_rank(op, 1, 5)
    if depth != channels:
        raise op.error(f"{channels} input channels for a filter of {depth}")
    check_bias(op, out_channels)
    found = _windows(op, tuple(sizes), tuple(filter_sizes))
    return ((n, *(w.size for w in found), out_channels),)


@operator(Op.CONV_3D, infer=conv_3d_shape, types=(TensorType.FLOAT32,))
def conv_3d(op: OpContext) -> Kernel:
    """CONV_3D: cross-correlation over three axes, bias, fused activation."""
    op.require_same_type(0, 1)
    x, y = op.read(0), op.write()
    weights = op.read(1)
    filter_sizes, out_channels = weights.shape[:3], weights.shape[4]
    found = _windows(op, x.shape[1:4], filter_sizes)
    sizes = list(zip(x.shape[1:4], found, strict=True))
    padded = op.temporary((*(size + w.before + w.after for size, w in sizes), x.shape[4]))
    inside = padded[tuple(slice(w.before, w.before + size) for size, w in sizes)]
    pieces = list(_pieces(op, padded, tuple(w.size for w in found), filter_sizes))
    matrix = weights.reshape(-1, out_channels)
    finish = float_end(op)

    def run() -> None:
        # In every run, as other operators use this scratch memory in between; images only replace the inside.
        padded.fill(0)
        for image, out in zip(x, y, strict=True):
            np.copyto(inside, image)
            for where, windows, columns in pieces:
                np.copyto(columns, windows)
                rows = out[where].reshape(-1, out_channels)
                np.matmul(columns.reshape(len(rows), -1), matrix, out=rows)
                finish(rows)

    return run


def _pieces(
    op: OpContext, padded: Array, sizes: Shape, filter_sizes: Shape
) -> Iterator[tuple[tuple[int, slice], Array, Array]]:
    """Yield rows of an output slice: where, their windows [rows, Wo, kd, kh, kw, C], memory for columns."""
    steps = padded.strides
    shape = (*sizes, *filter_sizes, padded.shape[3])
    # The three axes of space: channels have neither stride nor dilation.
    over = [s * t for s, t in zip(steps, strides(op), strict=False)]
    taps = [s * t for s, t in zip(steps, dilations(op), strict=False)]
    windows = as_strided(padded, shape, (*over, *taps, steps[3]), writeable=False)
    row_bytes = max(1, windows[:1, :1].size * padded.itemsize)
    step = max(1, min(sizes[1], _COLUMN_BYTES // row_bytes))
    columns = op.temporary((step, *shape[2:]))
    for depth in range(sizes[0]):
        for start in range(0, sizes[1], step):
            where = (depth, slice(start, min(start + step, sizes[1])))
            piece = windows[where]
            yield where, piece, columns[: len(piece)]
