"""GATHER: slices of the input along an axis, chosen by indices."""

from __future__ import annotations

import numpy as np

from runtime.errors import ShapeError
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.shapes import axis_index
from runtime.ops.spec import Kernel, OpContext, Shape, operator


def _axis(op: OpContext) -> int:
    if op.option("batch_dims"):
        raise op.unsupported("batch dimensions")
    return axis_index(op, op.option("axis"), len(op.input().shape))


def gather_shape(op: OpContext) -> tuple[Shape, ...]:
    """The indices' shape in place of the axis."""
    shape, axis = op.input().shape, _axis(op)
    return ((*shape[:axis], *op.input(1).shape, *shape[axis + 1 :]),)


@operator(BuiltinOperator.GATHER, max_version=8, infer=gather_shape)
def gather(op: OpContext) -> Kernel:
    """int32 or int64 indices, not negative; an index outside the axis is an error at run time."""
    op.require_same_type(0)
    op.require(TensorType.INT32, TensorType.INT64, i=1)
    x, indices, y, axis = op.read(0), op.read(1), op.write(), _axis(op)
    positions = np.empty(indices.shape, np.intp)
    size, where = x.shape[axis], op.where

    def run() -> None:
        np.copyto(positions, indices)
        if positions.size and (positions.min() < 0 or positions.max() >= size):
            raise ShapeError(f"{where}: an index is outside the axis of {size}")
        np.take(x, positions, axis=axis, out=y, mode="clip")

    return run
