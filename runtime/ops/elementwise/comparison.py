"""EQUAL, NOT_EQUAL, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL, broadcast; the result is bool.

Quantised operands are brought to one scale with 8 spare bits first (`reference/comparisons.h`).
"""

from collections.abc import Mapping

import numpy as np

from runtime.ops.support import QUANTIZED, Array, Kernel, Op, OpContext, TensorType, operator
from runtime.ops.support.blocks import pairwise
from runtime.ops.support.levels import scaled
from runtime.ops.support.quantization import RANGES
from runtime.ops.support.shapes import broadcast_inputs

_ORDERED = (TensorType.FLOAT32, TensorType.FLOAT16, TensorType.INT32, TensorType.INT64, *QUANTIZED)
_LEFT_SHIFT = 8
"""Spare bits of a quantised operand on the common scale (`left_shift` of `comparisons.cc`). Another value
would make other neighbouring values equal."""


_EQUALITY: Mapping[Op, np.ufunc] = {Op.EQUAL: np.equal, Op.NOT_EQUAL: np.not_equal}
_ORDER: Mapping[Op, np.ufunc] = {
    Op.GREATER: np.greater,
    Op.GREATER_EQUAL: np.greater_equal,
    Op.LESS: np.less,
    Op.LESS_EQUAL: np.less_equal,
}


@operator(
    *_EQUALITY, max_version=5, infer=broadcast_inputs, types=(*_ORDERED, TensorType.BOOL, TensorType.STRING)
)
def equality(op: OpContext) -> Kernel:
    """EQUAL, NOT_EQUAL: compare numbers, flags or strings, broadcast; bool."""
    return _compare(op, _EQUALITY[op.operator.opcode], QUANTIZED)


@operator(*_ORDER, max_version=4, infer=broadcast_inputs, types=_ORDERED)
def order(op: OpContext) -> Kernel:
    """GREATER, GREATER_EQUAL, LESS, LESS_EQUAL: compare numbers, broadcast; bool, False beside a NaN."""
    return _compare(op, _ORDER[op.operator.opcode], (TensorType.INT8, TensorType.UINT8))


def _compare(op: OpContext, ufunc: np.ufunc, scaled_types: tuple[TensorType, ...]) -> Kernel:
    op.require_operands(1)
    kind = op.input().type
    if kind in scaled_types and op.input(0).quantization is not None:
        return _compare_levels(op, kind, ufunc)
    return pairwise(op, ufunc)


def _compare_levels(op: OpContext, kind: TensorType, ufunc: np.ufunc) -> Kernel:
    tables = tuple(_common_scale(op, i, kind) for i in (0, 1))
    low = RANGES[kind][0]

    def apply(x: Array, z: Array, y: Array) -> None:
        # A table begins with the least level. Widened first: the
        # difference of two levels does not fit their type.
        ufunc(tables[0][x.astype(np.intp) - low], tables[1][z.astype(np.intp) - low], out=y)

    return pairwise(op, apply)


def _common_scale(op: OpContext, i: int, kind: TensorType) -> Array:
    """Return every level of input `i`, from the least, on the scale that both inputs share; int64."""
    scale, zero = op.scale_and_zero_point(op.input(i))
    low, high = RANGES[kind]
    return scaled((np.arange(low, high + 1, dtype=np.int64) - zero) << _LEFT_SHIFT, scale)
