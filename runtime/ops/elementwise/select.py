"""SELECT and SELECT_V2: elements of one tensor where a condition holds, of another where it does not."""

import numpy as np

from runtime.ops.support import MOVABLE, Kernel, Op, OpContext, Shape, TensorType, operator
from runtime.ops.support.shapes import broadcast


def select_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape of both values; the condition has it too, or is a scalar, or one flag for each row."""
    condition, first, second = (op.input(i).shape for i in range(3))
    if first != second:
        raise op.error(f"values of shapes {list(first)} and {list(second)}")
    by_row = len(condition) == 1 and first[:1] == condition
    if condition != first and not by_row and np.prod(condition) != 1:
        raise op.error(f"a condition of shape {list(condition)} for values of shape {list(first)}")
    return (first,)


@operator(Op.SELECT, max_version=4, infer=select_shape, types=MOVABLE, data=1)
def select(op: OpContext) -> Kernel:
    """SELECT: input 1 where the condition holds, else input 2; a flag of a list selects a whole row."""
    op.require(TensorType.BOOL)
    op.require_same_type(1, 2)
    condition, first, second, y = op.read(0), op.read(1), op.read(2), op.write()
    # Trailing dimensions of 1 make a list of flags select rows: without
    # them it would broadcast along the last axis.
    if condition.shape != first.shape:
        rows = condition.size if condition.size == len(first) and condition.ndim == 1 and first.ndim else 1
        condition = (
            condition.reshape((rows,) + (1,) * (first.ndim - 1)) if first.ndim else condition.reshape(())
        )
    return lambda: np.copyto(y, np.where(condition, first, second))


@operator(
    Op.SELECT_V2,
    max_version=2,
    infer=lambda op: (broadcast(op, *(op.input(i).shape for i in range(3))),),
    types=MOVABLE,
    data=1,
)
def select_v2(op: OpContext) -> Kernel:
    """SELECT_V2: input 1 where the condition holds, else input 2, all three broadcast."""
    op.require(TensorType.BOOL)
    op.require_same_type(1, 2)
    condition, first, second, y = op.read(0), op.read(1), op.read(2), op.write()
    return lambda: np.copyto(y, np.where(condition, first, second))
