"""TRANSPOSE_CONV: one GEMM to [pixels, kh * kw * Co], then every tap is added where it belongs.

Inputs: output shape (int32 [4]), filter [Co, kh, kw, Ci], x [N, H, W, Ci], bias [Co]. float32; int8, uint8
and int16 exactly as LiteRT's `reference/integer_ops/transpose_conv.h`.
"""

import numpy as np

from runtime.ops.matmul import integer_gemm
from runtime.ops.matmul.conv import RowsEnd, check_bias, plain_end, scaled_end
from runtime.ops.matmul.hybrid import RowQuantizer, channel_scales, filter_levels, is_hybrid
from runtime.ops.matmul.windows import transposed_before, transposed_span
from runtime.ops.support import Array, Kernel, Op, OpContext, Shape, TensorType, operator
from runtime.ops.support.blocks import in_turn
from runtime.ops.support.shapes import image_shape, require_rank


def transpose_conv_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape that input 0 states. Raises `ShapeError` where it does not fit the operands."""
    stated = op.integers(0, "output shape")
    n, _, _, channels = image_shape(op, 2)
    out_channels, _, _, depth = require_rank(op, 1, 4)
    if len(stated) != 4 or min(stated) < 1 or stated[0] != n or stated[3] != out_channels:
        raise op.error(f"output shape {list(stated)} for {n} images and {out_channels} channels")
    if depth != channels:
        raise op.error(f"{channels} input channels for a filter of {depth}")
    if op.option("stride_h") < 1 or op.option("stride_w") < 1:
        raise op.error("strides must be positive")
    return (stated,)


@operator(
    Op.TRANSPOSE_CONV,
    max_version=5,
    infer=transpose_conv_shape,
    types=(TensorType.FLOAT32, *integer_gemm.LEVELS),
    data=2,
    note="float32 with float32 or int8 filters; int8 and int16 with int8 filters",
)
def transpose_conv(op: OpContext) -> Kernel:
    """TRANSPOSE_CONV: the gradient of a convolution by its input, bias, fused activation."""
    kind = op.input(2).type
    check_bias(op, op.input(1).shape[0], 3)
    y = op.write()
    if is_hybrid(op, data=2):
        return _hybrid(op, y)
    if kind is TensorType.FLOAT32:
        op.require(TensorType.FLOAT32, i=1)
        end = plain_end(op, y.shape[2], 3)
        return _sums(op, op.read(2), op.read(1), y, end)
    integer_gemm.require_filter(op, kind)
    return _levels(op, kind)


def _sums(op: OpContext, x: Array, weights: Array, y: Array, end: RowsEnd | None) -> Kernel:
    """Return a kernel that writes sums of products to `y`, of the dtype of `weights`, image by image.

    One product for all taps of an image; adding the taps to the output is then strided additions only.
    """
    out_channels, filter_h, filter_w, depth = weights.shape
    n, height, width, _ = x.shape
    matrix = weights.reshape(-1, depth).T
    taps = op.temporary((height, width, out_channels, filter_h, filter_w), y.dtype)
    flat = taps.reshape(height * width, -1)
    pairs = [list(_scatter(op, taps, y[image], x[image].shape)) for image in range(n)]
    rows = y.reshape(n, y.shape[1], -1)

    def run() -> None:
        # The taps of neighbouring pixels overlap, so that an output is a sum over several of them.
        y.fill(0)
        for image in range(n):
            np.matmul(x[image].reshape(-1, depth), matrix, out=flat)
            for target, source in pairs[image]:
                np.add(target, source, out=target)
            if end is not None:
                end(rows[image], image)

    return run


def _hybrid(op: OpContext, y: Array) -> Kernel:
    """Return the hybrid kernel: each image is quantised by itself, asymmetrically."""
    x = op.read(2)
    quantizer = RowQuantizer(op, x.reshape(len(x), -1), asymmetric=True)
    end = scaled_end(op, quantizer.scales, channel_scales(op, y.shape[3]), y.shape[2], 3)
    run_sums = _sums(op, quantizer.levels.reshape(x.shape), filter_levels(op), y, end)
    return in_turn(quantizer, run_sums)


def _levels(op: OpContext, kind: TensorType) -> Kernel:
    """Return the kernel of quantised activations and filters, whose sums are exact in float64."""
    x, y = op.read(2), op.write()
    channels = y.shape[3]
    weights = integer_gemm.centred_filter(op).astype(np.float64)
    centred, total = op.temporary(x.shape, np.float64), op.temporary(y.shape, np.float64)
    zero = float(integer_gemm.input_zero_point(op, 2))
    bias = integer_gemm.integer_bias(op, channels, 3)
    finish = integer_gemm.output_stage(op, channels, y.size, data=2, bias=3)
    run_sums = _sums(op, centred, weights, total, None)

    def run() -> None:
        # First, since outputs at the border get fewer taps: no one correction would suit all of them.
        np.subtract(x, zero, out=centred)
        run_sums()
        np.add(total, bias, out=total)
        finish(total, y)

    return run


def _scatter(op: OpContext, taps: Array, image: Array, size: Shape) -> list[tuple[Array, Array]]:
    """Return, for each tap, the outputs that it reaches, and its products."""
    stride_h, stride_w, padding = op.option("stride_h"), op.option("stride_w"), op.option("padding")
    out_height, out_width, _ = image.shape
    filter_h, filter_w = taps.shape[3:]
    top = transposed_before(padding, out_height, filter_h, stride_h)
    left = transposed_before(padding, out_width, filter_w, stride_w)
    pairs = []
    for i in range(filter_h):
        in_h, out_h = transposed_span(i - top, stride_h, size[0], out_height)
        for j in range(filter_w):
            in_w, out_w = transposed_span(j - left, stride_w, size[1], out_width)
            target = image[out_h, out_w]
            if target.size:
                pairs.append((target, taps[in_h, in_w, :, i, j]))
    return pairs
