"""Custom operator Convolution2DTransposeBias of MediaPipe's models: a transposed convolution with its bias.

Inputs: x [N, H, W, Ci], filter [Co, kh, kw, Ci], bias [Co]; all float32. The options are the bytes of a C
struct: padding (1 SAME, 2 VALID), stride_w, stride_h, int32 each. Output: H * stride rows for SAME, the whole
extent (H - 1) * stride + kh for VALID.
"""

import struct
from dataclasses import dataclass

import numpy as np

from runtime.ops.matmul.windows import transposed_span
from runtime.ops.support import Array, Kernel, OpContext, Shape, TensorType
from runtime.ops.support.registry import custom_operator
from runtime.ops.support.shapes import image_shape, require_rank

_OPTIONS = struct.Struct("<3i")
_SAME, _VALID = 1, 2


@dataclass(frozen=True, slots=True)
class Axis:
    """One spatial dimension: `size` inputs, `taps` of the filter, `out` outputs."""

    size: int
    taps: int
    stride: int
    out: int

    def span(self, tap: int) -> tuple[slice, slice]:
        """Return the inputs that a tap carries to an output inside, and those outputs.

        Half of the padding is in front, rounded down (`padding.h`).
        """
        before = max(0, (self.size - 1) * self.stride + self.taps - self.out) // 2
        return transposed_span(tap - before, self.stride, self.size, self.out)


def axes(op: OpContext) -> tuple[Axis, Axis]:
    """Return height and width. Raises `ShapeError` for options that are out of range or do not fit."""
    if len(op.operator.custom_options) < _OPTIONS.size:
        raise op.error(f"{len(op.operator.custom_options)} bytes of options, {_OPTIONS.size} are needed")
    padding, stride_w, stride_h = _OPTIONS.unpack_from(op.operator.custom_options)
    if padding not in (_SAME, _VALID) or not 0 < stride_w <= 1 << 16 or not 0 < stride_h <= 1 << 16:
        raise op.error(f"padding {padding} and strides {stride_h}x{stride_w} of its options are out of range")
    _, height, width, channels = image_shape(op, 0)
    _, filter_h, filter_w, depth = require_rank(op, 1, 4)
    if depth != channels:
        raise op.error(f"{channels} input channels for a filter of {depth}")

    def axis(size: int, taps: int, stride: int) -> Axis:
        return Axis(size, taps, stride, size * stride if padding == _SAME else (size - 1) * stride + taps)

    return axis(height, filter_h, stride_h), axis(width, filter_w, stride_w)


def _shape(op: OpContext) -> tuple[Shape, ...]:
    rows, columns = axes(op)
    channels = op.input(1).shape[0]
    if op.input(2).shape != (channels,):
        raise op.error(f"a bias of shape {list(op.input(2).shape)} for {channels} channels")
    return ((op.input().shape[0], rows.out, columns.out, channels),)


@custom_operator("Convolution2DTransposeBias", infer=_shape)
def transpose_conv_bias(op: OpContext) -> Kernel:
    """Compute one GEMM to [pixels, taps, Co], and add every tap to its outputs, which start as the bias."""
    for i in range(3):
        op.require(TensorType.FLOAT32, i=i)
    x, weights, bias, y = op.read(0), op.constant(1, "filter"), op.read(2), op.write()
    channels, filter_h, filter_w, depth = weights.shape
    rows, columns = axes(op)
    products = op.temporary((*x.shape[:3], filter_h, filter_w, channels))
    flat = products.reshape(-1, filter_h * filter_w * channels)
    # Channels last, so that adding a tap to its outputs goes over neighbouring memory.
    matrix = np.ascontiguousarray(weights.transpose(3, 1, 2, 0).reshape(depth, -1))
    pairs = _pairs(products, y, rows, columns)

    def run() -> None:
        np.copyto(y, bias)
        np.matmul(x.reshape(-1, depth), matrix, out=flat)
        for target, source in pairs:
            np.add(target, source, out=target)

    return run


def _pairs(products: Array, y: Array, rows: Axis, columns: Axis) -> list[tuple[Array, Array]]:
    pairs = []
    for i in range(rows.taps):
        in_h, out_h = rows.span(i)
        for j in range(columns.taps):
            in_w, out_w = columns.span(j)
            pairs.append((y[:, out_h, out_w], products[:, in_h, in_w, i, j]))
    return pairs
