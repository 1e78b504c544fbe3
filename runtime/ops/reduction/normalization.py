"""L2_NORMALIZATION along the last axis, LOCAL_RESPONSE_NORMALIZATION across channels."""

import numpy as np

from runtime.ops.support import Kernel, Op, OpContext, TensorType, operator
from runtime.ops.support.quantization import RANGES, inverse_square_root, multiply_by_quantized_multiplier
from runtime.ops.support.shapes import same_shape

_SMALLEST_NORM = np.float32(1e-6)
"""Least norm that divides (`epsilon` of `reference/l2normalization.h`): a row of zeros stays zero."""

_BYTES = (TensorType.INT8, TensorType.UINT8)


@operator(Op.L2_NORMALIZATION, max_version=2, infer=same_shape, types=(TensorType.FLOAT32, *_BYTES))
def l2_normalization(op: OpContext) -> Kernel:
    """L2_NORMALIZATION: x / max(sqrt(sum x^2), 1e-6) along the last axis (`reference/l2normalization.h`).

    float32; int8 and uint8 with an output scale of 1/128.
    """
    kind = op.input().type
    op.require_same_type(0)
    if kind in _BYTES:
        return _l2_of_levels(op, kind)
    x, y = op.read(0), op.write()
    norm = op.temporary((*x.shape[:-1], 1))

    def run() -> None:
        # The output holds the squares until the quotient, the only step that needs x again, replaces them.
        np.multiply(x, x, out=y)
        np.add.reduce(y, axis=-1, out=norm, keepdims=True)
        np.sqrt(norm, out=norm)
        np.maximum(norm, _SMALLEST_NORM, out=norm)
        np.divide(x, norm, out=y)

    return run


def _l2_of_levels(op: OpContext, kind: TensorType) -> Kernel:
    """Return the kernel of int8 or uint8 (`reference/integer_ops/l2normalization.h`).

    The result has 7 fractional bits. LiteRT multiplies uint8 by 128 before rescaling, and shifts int8 after:
    the two round differently.
    """
    _, zero = op.scale_and_zero_point(op.input())
    centre = 128 if kind is TensorType.UINT8 else 0
    if op.scale_and_zero_point(op.output()) != (1 / 128, centre):
        raise op.unsupported(f"an output other than with scale 1/128 and zero point {centre}")
    classes = op.input().shape[-1]
    x, y = op.read(0).reshape(-1, classes), op.write().reshape(-1, classes)
    before, after = (128, 0) if kind is TensorType.UINT8 else (1, 7)

    def run() -> None:
        for row, out in zip(x, y, strict=True):
            centred = row.astype(np.int64) - zero
            multiplier, shift = inverse_square_root(int((centred * centred).sum()))
            levels = multiply_by_quantized_multiplier(centred * before, multiplier, shift + after)
            np.clip(levels + centre, *RANGES[kind], out=out, casting="unsafe")

    return run


@operator(Op.LOCAL_RESPONSE_NORMALIZATION, infer=same_shape, types=(TensorType.FLOAT32,))
def local_response_normalization(op: OpContext) -> Kernel:
    """LOCAL_RESPONSE_NORMALIZATION: x * (bias + alpha * sum of squares) ^ -beta across channels; float32.

    The sum is over channels [c - radius, c + radius): the reference leaves the last one out
    (`reference_ops.h`).
    """
    x, y = op.read(0), op.write()
    radius, channels = int(op.option("radius")), x.shape[-1]
    alpha, beta, bias = (np.float32(op.option(name)) for name in ("alpha", "beta", "bias"))
    if radius < 0:
        raise op.error(f"a radius of {radius}")
    squares, sums = op.temporary(x.shape), op.temporary(x.shape)
    # Ascending, so that each channel adds its squares in the reference's order, on which
    # the rounding depends. A shift by all channels or more reaches nothing, and would
    # turn the ends of the slices below negative.
    shifts = range(-min(radius, channels - 1), min(radius, channels))
    spans = [
        (slice(max(0, -s), channels - max(0, s)), slice(max(0, s), channels + min(0, s))) for s in shifts
    ]

    def run() -> None:
        np.multiply(x, x, out=squares)
        sums.fill(0)
        for target, source in spans:
            np.add(sums[..., target], squares[..., source], out=sums[..., target])
        np.multiply(sums, alpha, out=sums)
        np.add(sums, bias, out=sums)
        np.power(sums, -beta, out=sums)
        np.multiply(x, sums, out=y)

    return run
