"""MAX_POOL_2D, AVERAGE_POOL_2D and L2_POOL_2D over [N, H, W, C]."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from runtime.ops.support import QUANTIZED, Array, Kernel, Op, OpContext, Shape, TensorType, operator
from runtime.ops.support.fused_activation import LARGEST, clamp_floats
from runtime.ops.support.quantization import RANGES, activation_range, float_activation_range
from runtime.ops.support.shapes import Window, image_shape, span, window

_TYPES = (TensorType.FLOAT32, *QUANTIZED)


def _windows(op: OpContext) -> tuple[Window, Window]:
    _, height, width, _ = image_shape(op)
    padding = op.option("padding")
    rows = window(op, padding, height, op.option("filter_height"), op.option("stride_h"))
    columns = window(op, padding, width, op.option("filter_width"), op.option("stride_w"))
    return rows, columns


def pool_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return [N, Ho, Wo, C]."""
    rows, columns = _windows(op)
    n, _, _, channels = op.input().shape
    return ((n, rows.size, columns.size, channels),)


def _taps(op: OpContext, x: Array, y: Array) -> Iterator[tuple[Array, Array]]:
    """Yield, for every tap of the filter, the outputs whose window has an input there, and those inputs.

    Views of whole tensors, one step each: pooling then is as many numpy passes as the filter has taps, and
    what lies outside the image is left out instead of padded.
    """
    stride_h, stride_w = op.option("stride_h"), op.option("stride_w")
    rows, columns = _windows(op)
    for i in reaching(rows, op.option("filter_height"), stride_h, x.shape[1]):
        out_h, in_h = span(i - rows.before, stride_h, x.shape[1], rows.size)
        for j in reaching(columns, op.option("filter_width"), stride_w, x.shape[2]):
            out_w, in_w = span(j - columns.before, stride_w, x.shape[2], columns.size)
            yield y[:, out_h, out_w], x[:, in_h, in_w]


def reaching(axis: Window, extent: int, stride: int, size: int) -> range:
    """Return the taps that touch an input for some output; a filter may be far larger than the image."""
    return range(max(0, axis.before - (axis.size - 1) * stride), min(extent, axis.before + size))


def _clamp(op: OpContext, kind: TensorType) -> tuple[float, float] | None:
    if kind is TensorType.FLOAT32:
        return float_activation_range(op.activation())
    return activation_range(op.activation(), *op.scale_and_zero_point(op.output()), kind)


@operator(Op.MAX_POOL_2D, max_version=3, infer=pool_shape, types=_TYPES)
def max_pool(op: OpContext) -> Kernel:
    """MAX_POOL_2D: the largest value under the window, NaN left out, then the fused activation.

    float32, int8, uint8, int16; quantised types need equal quantisation of input and output.
    """
    kind = op.input().type
    op.require_same_type(0)
    if kind in QUANTIZED:
        op.require_equal_quantization(op.input(), op.output())
    x, y = op.read(0), op.write()
    is_float = kind is TensorType.FLOAT32
    clamp = _clamp(op, kind)
    low, high = (-LARGEST, LARGEST) if is_float and clamp is None else clamp or RANGES[kind]
    larger = np.fmax if is_float else np.maximum
    taps = [(out, value) for out, value in _taps(op, x, y) if out.size]
    # Where the first tap has an input for every output, it is copied, and the pass that fills y is saved.
    covers = bool(taps) and taps[0][0].shape == y.shape

    def run() -> None:
        if covers:
            np.copyto(taps[0][0], taps[0][1])
        else:
            y.fill(low)
        for out, value in taps[covers:]:
            larger(out, value, out=out)
        # `fmax` with a number also replaces a NaN that the first copy brought, or that is alone under its
        # window.
        larger(y, low, out=y)
        np.minimum(y, high, out=y)

    return run


@operator(Op.AVERAGE_POOL_2D, max_version=3, infer=pool_shape, types=_TYPES)
def average_pool(op: OpContext) -> Kernel:
    """AVERAGE_POOL_2D: the mean of the inputs under the window; those outside the image do not count.

    float32, int8, uint8, int16; quantised types round ties away from zero
    (`reference/integer_ops/pooling.h`) and need equal quantisation of input and output.
    """
    kind = op.input().type
    op.require_same_type(0)
    x, y = op.read(0), op.write()
    clamp = _clamp(op, kind)
    integer = kind in QUANTIZED
    if integer:
        op.require_equal_quantization(op.input(), op.output())
    total = op.temporary(y.shape, np.int32) if integer else y
    add_up = _adder(op, x, total)
    counts = _counts(op, x, y, np.int32 if integer else np.float32)
    half = counts // 2 if integer else counts

    def run() -> None:
        add_up()
        if integer:
            # C's division truncates: half of the count, added with the sum's sign, makes it round.
            np.add(total, np.where(total > 0, half, -half), out=total)
            np.copyto(total, np.fix(total / counts), casting="unsafe")
        else:
            np.divide(total, counts, out=total)
            clamp_floats(total, clamp)
        if integer and clamp is not None:
            np.clip(total, *clamp, out=y, casting="unsafe")

    return run


def _adder(op: OpContext, x: Array, total: Array) -> Kernel:
    """Return a kernel that sums the windows into `total`: tap by tap, or at once for a single window."""
    if total.shape[1:3] == (1, 1):
        rows, columns = _windows(op)
        height, width = op.option("filter_height") - rows.before, op.option("filter_width") - columns.before
        under, sums = x[:, :height, :width], total[:, 0, 0]
        return lambda: np.add.reduce(under, axis=(1, 2), dtype=total.dtype, out=sums)
    taps = [(out, value) for out, value in _taps(op, x, total) if out.size]

    def run() -> None:
        total.fill(0)
        for out, value in taps:
            np.add(out, value, out=out)

    return run


def _counts(op: OpContext, x: Array, y: Array, dtype: Any) -> Array:
    """Return how many inputs each window has: the same taps over an image of one channel."""
    counts = np.zeros((1, *y.shape[1:3], 1), dtype)
    for valid, _ in _taps(op, np.zeros((1, *x.shape[1:3], 1)), counts):
        np.add(valid, 1, out=valid)
    return counts


@operator(Op.L2_POOL_2D, infer=pool_shape, types=(TensorType.FLOAT32,))
def l2_pool(op: OpContext) -> Kernel:
    """L2_POOL_2D: the root of the mean square of the inputs under the window; float32."""
    x, y = op.read(0), op.write()
    clamp = float_activation_range(op.activation())
    # Every input lies under several windows: it is squared once, not once for each tap.
    squares = op.temporary(x.shape)
    add_up, counts = _adder(op, squares, y), _counts(op, x, y, np.float32)

    def run() -> None:
        np.multiply(x, x, out=squares)
        add_up()
        np.divide(y, counts, out=y)
        np.sqrt(y, out=y)
        clamp_floats(y, clamp)

    return run
