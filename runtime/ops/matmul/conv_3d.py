"""CONV_3D and CONV_3D_TRANSPOSE, float32.

CONV_3D: x [N, D, H, W, Ci], filter [kd, kh, kw, Ci, Co], bias [Co] -> [N, Do, Ho, Wo, Co]. Windows of some
output rows are gathered into columns, then one GEMM (`reference/conv3d.h`).
CONV_3D_TRANSPOSE: output shape (int32 [5]), filter [kd, kh, kw, Co, Ci], x [N, D, H, W, Ci], bias [Co]. One
GEMM for each tap, added where the tap reaches (`reference/conv3d_transpose.h`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
from numpy.lib.stride_tricks import as_strided

from runtime.model.schema import BuiltinOperator, Padding, TensorType
from runtime.ops.matmul.conv import check_bias
from runtime.ops.matmul.windows import transposed_span
from runtime.ops.support.context import Kernel, OpContext
from runtime.ops.support.fused_activation import clamp_floats
from runtime.ops.support.registry import operator
from runtime.ops.support.shapes import Window, require_rank, window
from runtime.ops.support.value import Array, Shape
from runtime.quantization import float_activation_range

_AXES = ("d", "h", "w")
_COLUMN_BYTES = 1 << 20
"""Bytes of gathered columns for one GEMM. Chosen to stay in a second-level cache between gathering and
product; less makes the matrices too small for BLAS to be efficient."""


def _strides(op: OpContext) -> tuple[int, ...]:
    return tuple(op.option(f"stride_{axis}") for axis in _AXES)


def _dilations(op: OpContext) -> tuple[int, ...]:
    return tuple(op.option(f"dilation_{axis}_factor") for axis in _AXES)


def _windows(op: OpContext, sizes: Shape, filter_sizes: Shape) -> list[Window]:
    padding = op.option("padding")
    each = zip(sizes, filter_sizes, _strides(op), _dilations(op), strict=True)
    return [window(op, padding, *one) for one in each]


def _volume(op: OpContext, i: int) -> Shape:
    """Return [N, D, H, W, C] of input `i`. Raises `ShapeError` for a volume without cells."""
    shape = require_rank(op, i, 5)
    if min(shape[1:]) < 1:
        raise op.error(f"input {i} of shape {list(shape)} has no cells")
    return shape


def conv_3d_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return [N, Do, Ho, Wo, Co]. Raises `ShapeError` where filter and input differ in channels."""
    n, *sizes, channels = _volume(op, 0)
    *filter_sizes, depth, out_channels = require_rank(op, 1, 5)
    if depth != channels:
        raise op.error(f"{channels} input channels for a filter of {depth}")
    check_bias(op, out_channels)
    found = _windows(op, tuple(sizes), tuple(filter_sizes))
    return ((n, *(w.size for w in found), out_channels),)


@operator(BuiltinOperator.CONV_3D, max_version=1, infer=conv_3d_shape, types=(TensorType.FLOAT32,))
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
    end = _end(op, 2)

    def run() -> None:
        padded.fill(0)
        for image, out in zip(x, y, strict=True):
            np.copyto(inside, image)
            for where, windows, columns in pieces:
                np.copyto(columns, windows)
                rows = out[where].reshape(-1, out_channels)
                np.matmul(columns.reshape(len(rows), -1), matrix, out=rows)
                end(rows)

    return run


def _pieces(
    op: OpContext, padded: Array, sizes: Shape, filter_sizes: Shape
) -> Iterator[tuple[tuple[int, slice], Array, Array]]:
    """Yield rows of an output slice: where, their windows [rows, Wo, kd, kh, kw, C], memory for columns."""
    strides, dilations, steps = _strides(op), _dilations(op), padded.strides
    shape = (*sizes, *filter_sizes, padded.shape[3])
    over = [s * t for s, t in zip(steps, strides, strict=False)]
    taps = [s * t for s, t in zip(steps, dilations, strict=False)]
    windows = as_strided(padded, shape, (*over, *taps, steps[3]), writeable=False)
    row_bytes = max(1, windows[:1, :1].size * padded.itemsize)
    step = max(1, min(sizes[1], _COLUMN_BYTES // row_bytes))
    columns = op.temporary((step, *shape[2:]))
    for depth in range(sizes[0]):
        for start in range(0, sizes[1], step):
            where = (depth, slice(start, min(start + step, sizes[1])))
            piece = windows[where]
            yield where, piece, columns[: len(piece)]


def _end(op: OpContext, bias_input: int) -> Callable[[Array], None]:
    """Return what adds the bias to [..., Co] and applies the activation, in place."""
    bias = None if op.optional(bias_input) is None else op.read(bias_input).reshape(-1)
    clamp = float_activation_range(op.activation())

    def end(rows: Array) -> None:
        if bias is not None:
            np.add(rows, bias, out=rows)
        clamp_floats(rows, clamp)

    return end


def conv_3d_transpose_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape that input 0 states. Raises `ShapeError` where it does not fit the operands."""
    stated = op.integers(0, "output shape")
    n, *_, channels = _volume(op, 2)
    *filter_sizes, out_channels, depth = require_rank(op, 1, 5)
    if len(stated) != 5 or min(stated) < 1 or stated[0] != n or stated[4] != out_channels:
        raise op.error(f"output shape {list(stated)} for {n} volumes and {out_channels} channels")
    if depth != channels:
        raise op.error(f"{channels} input channels for a filter of {depth}")
    if min((*filter_sizes, *_strides(op), *_dilations(op))) < 1:
        raise op.error("filter, strides and dilations must be positive")
    check_bias(op, out_channels, 3)
    return (stated,)


@operator(
    BuiltinOperator.CONV_3D_TRANSPOSE,
    max_version=1,
    infer=conv_3d_transpose_shape,
    types=(TensorType.FLOAT32,),
    data=2,
)
def conv_3d_transpose(op: OpContext) -> Kernel:
    """CONV_3D_TRANSPOSE: the gradient of CONV_3D by its input, bias, fused activation."""
    op.require_same_type(1, 2)
    weights, x, y = op.read(1), op.read(2), op.write()
    flat = x.reshape(-1, x.shape[4])
    sums = op.temporary((len(flat), y.shape[4]))
    taps = [
        (weights[tap].T, y[(slice(None), *target)], sums.reshape(*x.shape[:4], -1)[(slice(None), *source)])
        for tap, source, target in _reached(op, x.shape[1:4], y.shape[1:4], weights.shape[:3])
    ]
    end = _end(op, 3)

    def run() -> None:
        y.fill(0)
        for matrix, target, source in taps:
            np.matmul(flat, matrix, out=sums)
            np.add(target, source, out=target)
        end(y)

    return run


def _reached(
    op: OpContext, sizes: Shape, out_sizes: Shape, filter_sizes: Shape
) -> Iterator[tuple[Shape, tuple[slice, ...], tuple[slice, ...]]]:
    """Yield each tap that reaches the output, the inputs that it carries there, and the outputs."""
    strides, dilations = _strides(op), _dilations(op)
    before = [_before(op, axis, out_sizes[axis], filter_sizes[axis]) for axis in range(3)]
    for tap in product(*map(range, filter_sizes)):
        spans = [
            transposed_span(
                tap[axis] * dilations[axis] - before[axis], strides[axis], sizes[axis], out_sizes[axis]
            )
            for axis in range(3)
        ]
        if all(source.stop > source.start for source, _ in spans):
            yield tap, tuple(source for source, _ in spans), tuple(target for _, target in spans)


def _before(op: OpContext, axis: int, out: int, extent: int) -> int:
    """Return the cells cut off in front, as if the output were convolved to the input (`padding.h`)."""
    stride = _strides(op)[axis]
    effective = (extent - 1) * _dilations(op)[axis] + 1
    same = op.option("padding") is Padding.SAME
    steps = -(-out // stride) if same else (out + stride - effective) // stride
    return max(0, (steps - 1) * stride + effective - out) // 2
