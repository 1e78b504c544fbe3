"""BATCH_MATMUL: matrix products of the last two dimensions; the leading ones broadcast.

float32; int8 and int16 exactly as LiteRT's `reference/batch_matmul.h`; float32 by constant int8 (hybrid).
"""

from __future__ import annotations

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.hybrid import RowQuantizer, is_hybrid
from runtime.ops.shapes import broadcast
from runtime.ops.spec import Array, Kernel, OpContext, Shape, operator
from runtime.quantization import (
    RANGES,
    Requantizer,
    WideRequantizer,
    quantize_multipliers,
)


def batch_matmul_shape(op: OpContext) -> tuple[Shape, ...]:
    """Leading dimensions broadcast; [..., m, k] times [..., k, n]."""
    left, right = op.input(0).shape, op.input(1).shape
    if len(left) < 2 or len(right) < 2:
        raise op.error(f"shapes {list(left)} and {list(right)}, rank 2 at least is needed")
    rows, inner = (left[-1], left[-2]) if op.option("adj_x") else (left[-2], left[-1])
    depth, columns = (right[-1], right[-2]) if op.option("adj_y") else (right[-2], right[-1])
    if inner != depth:
        raise op.error(f"shapes {list(left)} and {list(right)} do not chain")
    return ((*broadcast(op, left[:-2], right[:-2]), rows, columns),)


@operator(
    BuiltinOperator.BATCH_MATMUL,
    max_version=4,
    infer=batch_matmul_shape,
    types=(TensorType.FLOAT32, TensorType.INT8, TensorType.INT16),
    note="both operands of one type, or float32 by int8",
)
def batch_matmul(op: OpContext) -> Kernel:
    """Matrix product; `adj_x`, `adj_y` transpose the operands."""
    kind = op.require(TensorType.FLOAT32, TensorType.INT8, TensorType.INT16)
    if is_hybrid(op):
        return _hybrid(op)
    op.require(kind, i=1)
    x = op.read(0).swapaxes(-1, -2) if op.option("adj_x") else op.read(0)
    z = op.read(1).swapaxes(-1, -2) if op.option("adj_y") else op.read(1)
    if kind is not TensorType.FLOAT32:
        return _levels(op, kind, x, z)
    y = op.write()

    def run() -> None:
        np.matmul(x, z, out=y)

    return run


def _levels(op: OpContext, kind: TensorType, x: Array, z: Array) -> Kernel:
    """Products of centred levels are exact in double precision."""
    y = op.write()
    (scale_x, zero_x), (scale_z, zero_z) = (op.scale_and_zero_point(op.input(i)) for i in (0, 1))
    out_scale, out_zero = op.scale_and_zero_point(op.output())
    real = float(np.float32(scale_x) * np.float32(scale_z)) / out_scale
    multipliers, shifts = quantize_multipliers([real])
    wide_x, wide_z = op.temporary(x.shape, np.float64), op.temporary(z.shape, np.float64)
    total = op.temporary(y.shape, np.float64)
    finish = (
        WideRequantizer(multipliers, shifts, RANGES[kind])
        if kind is TensorType.INT16
        else Requantizer(multipliers, shifts, out_zero, RANGES[kind], op.temporary((y.size,), np.float64))
    )

    def run() -> None:
        np.subtract(x, float(zero_x), out=wide_x)
        np.subtract(z, float(zero_z), out=wide_z)
        np.matmul(wide_x, wide_z, out=total)
        finish(total, y)

    return run


def _hybrid(op: OpContext) -> Kernel:
    """Each row of the first operand is quantised by itself."""
    if op.option("adj_x"):
        raise op.unsupported("a transposed float operand with an int8 one")
    x, y = op.read(0), op.write()
    rows = x.reshape(-1, x.shape[-1])
    quantizer = RowQuantizer(op, rows, asymmetric=bool(op.option("asymmetric_quantize_inputs")))
    levels = quantizer.levels.reshape(x.shape)
    scale, zero = op.scale_and_zero_point(op.input(1))
    z = op.read(1).swapaxes(-1, -2) if op.option("adj_y") else op.read(1)
    matrix = op.temporary(z.shape)
    scales = quantizer.scales.reshape(*x.shape[:-1], 1)

    def run() -> None:
        quantizer()
        np.subtract(z, np.float32(zero), out=matrix)
        np.matmul(levels, matrix, out=y)
        np.multiply(y, scales * np.float32(scale), out=y)

    return run
