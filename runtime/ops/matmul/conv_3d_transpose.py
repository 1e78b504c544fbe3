"""CONV_3D_TRANSPOSE, float32: one GEMM for each tap, added where the tap reaches.

Output shape (int32 [5]), filter [kd, kh, kw, Co, Ci], x [N, D, H, W, Ci], bias [Co]; the reference is
`reference/conv3d_transpose.h`.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np

from runtime.ops.matmul.conv import check_bias, float_end
from runtime.ops.matmul.conv_3d import dilations, strides, volume
from runtime.ops.matmul.windows import transposed_before, transposed_span
from runtime.ops.support import Kernel, Op, OpContext, Shape, TensorType, operator
from runtime.ops.support.shapes import require_rank


def conv_3d_transpose_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape that input 0 states. Raises `ShapeError` where it does not fit the operands."""
    stated = op.integers(0, "output shape")
    n, *_, channels = volume(op, 2)
    *filter_sizes, out_channels, depth = require_rank(op, 1, 5)
    if len(stated) != 5 or min(stated) < 1 or stated[0] != n or stated[4] != out_channels:
        raise op.error(f"output shape {list(stated)} for {n} volumes and {out_channels} channels")
    if depth != channels:
        raise op.error(f"{channels} input channels for a filter of {depth}")
    if min((*filter_sizes, *strides(op), *dilations(op))) < 1:
        raise op.error("filter, strides and dilations must be positive")
    check_bias(op, out_channels, 3)
    return (stated,)


@operator(Op.CONV_3D_TRANSPOSE, infer=conv_3d_transpose_shape, types=(TensorType.FLOAT32,), data=2)
def conv_3d_transpose(op: OpContext) -> Kernel:
    """CONV_3D_TRANSPOSE: the gradient of CONV_3D by its input, bias, fused activation."""
    op.require_same_type(1, 2)
    weights, x, y = op.read(1), op.read(2), op.write()
    flat = x.reshape(-1, x.shape[4])
    # One tap's products, in memory that all taps share: those of all
    # taps at once would take it as many times.
    sums = op.temporary((len(flat), y.shape[4]))
    taps = [
        (weights[tap].T, y[(slice(None), *target)], sums.reshape(*x.shape[:4], -1)[(slice(None), *source)])
        for tap, source, target in _reached(op, x.shape[1:4], y.shape[1:4], weights.shape[:3])
    ]
    finish = float_end(op, 3)

    def run() -> None:
        y.fill(0)
        for matrix, target, source in taps:
            np.matmul(flat, matrix, out=sums)
            np.add(target, source, out=target)
        finish(y)

    return run


def _reached(
    op: OpContext, sizes: Shape, out_sizes: Shape, filter_sizes: Shape
) -> Iterator[tuple[Shape, tuple[slice, ...], tuple[slice, ...]]]:
    """Yield each tap that reaches the output, the inputs that it carries there, and the outputs."""
    steps, spread = strides(op), dilations(op)
    padding = op.option("padding")
    each = zip(out_sizes, filter_sizes, steps, spread, strict=True)
    before = [transposed_before(padding, *one) for one in each]
    for tap in product(*map(range, filter_sizes)):
        spans = [
            transposed_span(
                tap[axis] * spread[axis] - before[axis], steps[axis], sizes[axis], out_sizes[axis]
            )
            for axis in range(3)
        ]
        if all(source.stop > source.start for source, _ in spans):
            yield tap, tuple(source for source, _ in spans), tuple(target for _, target in spans)
