"""PAD and PADV2: a border of a constant value."""

from __future__ import annotations

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.elementwise import require_equal_quantization
from runtime.ops.spec import Kernel, OpContext, Shape, operator


def _paddings(op: OpContext) -> list[tuple[int, int]]:
    shape, values = op.input(1).shape, op.integers(1, "paddings")
    rank = len(op.input(0).shape)
    if shape != (rank, 2) or any(v < 0 for v in values):
        raise op.error(f"paddings {list(values)} of shape {list(shape)} do not fit rank {rank}")
    return list(zip(values[::2], values[1::2], strict=True))


def pad_shape(op: OpContext) -> tuple[Shape, ...]:
    """Each dimension grows by what stands before and behind it."""
    return (tuple(d + a + b for d, (a, b) in zip(op.input().shape, _paddings(op), strict=True)),)


@operator(BuiltinOperator.PAD, BuiltinOperator.PADV2, max_version=6, infer=pad_shape)
def pad(op: OpContext) -> Kernel:
    """The value is real zero, or input 2 (PADV2); int8 needs equal quantisation."""
    op.require_same_type(0)
    x, y, paddings = op.read(0), op.write(), _paddings(op)
    value = 0
    if op.input().type in (TensorType.INT8, TensorType.UINT8, TensorType.INT16):
        require_equal_quantization(op, op.input(), op.output())
        value = op.scale_and_zero_point(op.output())[1]
    fill = op.read(2).reshape(-1) if op.optional(2) is not None else np.full(1, value, y.dtype)
    inside = tuple(slice(a, a + d) for d, (a, _) in zip(x.shape, paddings, strict=True))
    borders = []
    for axis, (before, behind) in enumerate(paddings):
        within = inside[:axis]
        size = y.shape[axis]
        borders += [y[(*within, s)] for s in (slice(0, before), slice(size - behind, size))]
    edges = [b for b in borders if b.size]
    target = y[inside]

    def run() -> None:
        for edge in edges:
            np.copyto(edge, fill)
        np.copyto(target, x)

    return run
