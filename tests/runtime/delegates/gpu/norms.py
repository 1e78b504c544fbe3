"""The norm of a layer in eleven operators, as converters of PyTorch write it."""

import numpy as np

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.delegates.gpu.models import ModelBuilder

EPSILON = 1e-5
"""What keeps the root of a variance from zero."""


class Norm:
    """The norm `y` of `x`, by default an input, over its channels; `factor` is one of its parts.

    With `keep_dims` nothing is reshaped; `zero`, `axis` and `root` make another formula of it.
    """

    def __init__(
        self,
        build: ModelBuilder,
        shape: tuple[int, ...],
        *,
        x: int | None = None,
        zero: float = 0.0,
        axis: int = 2,
        root: str = "mean",
        keep_dims: bool = False,
    ) -> None:
        rows = (*shape[:-1], 1) if keep_dims else shape[:-1]
        x = build.input(*shape) if x is None else x
        column = (*shape[:-1], 1)

        def broadcast(value: int) -> int:
            return value if keep_dims else build.op(Op.RESHAPE, [value], column, new_shape=list(column))

        axes = build.constant(np.array([axis], np.int32))
        average = build.op(Op.MEAN, [x, axes], rows, keep_dims=keep_dims)
        centre = broadcast(average)
        squares = build.op(Op.SQUARED_DIFFERENCE, [x, centre], shape)
        variance = build.op(Op.MEAN, [squares, axes], rows, keep_dims=keep_dims)
        moved = build.op(Op.ADD, [variance, build.constant(np.float32(EPSILON))], rows)
        factor = build.op(Op.RSQRT, [moved], rows)
        product = build.op(Op.MUL, [factor, average if root == "mean" else factor], rows)
        shift = build.op(Op.SUB, [build.constant(np.float32(zero)), product], rows)
        scaled = build.op(Op.MUL, [x, broadcast(factor)], shape)
        self.x, self.factor = x, factor
        self.y = build.op(Op.ADD, [scaled, broadcast(shift)], shape)
