"""Operators on shapes themselves: SHAPE, RANK and BROADCAST_ARGS."""

from runtime.ops.support import INDICES, MOVABLE, Kernel, Op, OpContext, Shape, operator
from runtime.ops.support.shapes import broadcast


@operator(Op.SHAPE, infer=lambda op: ((len(op.input().shape),),), shape_only=True, types=MOVABLE)
def shape(op: OpContext) -> Kernel:
    """SHAPE: the input's dimensions. They are known while planning, so that the operator is folded."""
    value, y = op.input().shape, op.write()

    def run() -> None:
        y[:] = value

    return run


@operator(Op.RANK, infer=lambda _op: ((),), shape_only=True, types=MOVABLE)
def rank(op: OpContext) -> Kernel:
    """RANK: the input's number of dimensions; folded like SHAPE."""
    value, y = len(op.input().shape), op.write()

    def run() -> None:
        y[...] = value

    return run


def broadcast_args_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the length of the longer of two shapes."""
    shapes = op.input(0).shape, op.input(1).shape
    if any(len(s) != 1 for s in shapes):
        raise op.error(f"{list(shapes[0])} and {list(shapes[1])} are not the shapes of two lists")
    return ((max(shapes[0][0], shapes[1][0]),),)


@operator(Op.BROADCAST_ARGS, infer=broadcast_args_shape, types=INDICES)
def broadcast_args(op: OpContext) -> Kernel:
    """BROADCAST_ARGS: the shape that two shapes broadcast to. Raises `ShapeError` at run time."""
    op.require_same_type(0, 1)
    left, right, y = op.read(0), op.read(1), op.write()

    def run() -> None:
        y[:] = broadcast(op, tuple(left.tolist()), tuple(right.tolist()))

    return run
