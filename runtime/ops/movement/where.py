"""Outputs whose length depends on the values: WHERE and UNIQUE."""

import numpy as np

from runtime.ops.support import INDICES, REAL_NUMBERS, Kernel, Op, OpContext, Shape, TensorType, operator


def late_shape(op: OpContext) -> tuple[Shape, ...]:
    """Raise `PostponeError`: only running the operator tells its outputs' shapes."""
    raise op.shapes_at_run_time()


@operator(Op.WHERE, max_version=2, infer=late_shape, types=(TensorType.BOOL, *REAL_NUMBERS))
def where(op: OpContext) -> Kernel:
    """WHERE: index vectors of the non-zero elements in row-major order, int64 [n, rank]."""
    x = op.read(0)
    return lambda: op.deliver(0, np.argwhere(x).astype(np.int64))


@operator(Op.UNIQUE, infer=late_shape, types=REAL_NUMBERS)
def unique(op: OpContext) -> Kernel:
    """Compute UNIQUE: the distinct values by first occurrence, and each element's place among them."""
    x = op.read(0)
    if x.ndim != 1 or op.output(1).type not in INDICES:
        raise op.error(f"a list is needed, and places of int32 or int64: {list(x.shape)}")
    dtype = op.output(1).dtype

    def run() -> None:
        # numpy sorts the values; `rank` turns places among the sorted ones into places by first occurrence.
        values, first, inverse = np.unique(x, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty(order.size, dtype)
        rank[order] = np.arange(order.size)
        op.deliver(0, values[order])
        op.deliver(1, rank[inverse])

    return run
