"""Functions of each element: ABS, NEG, SQUARE, SQRT, RSQRT, EXP, LOG, SIN, COS, STABLEHLO_CBRT.

Levels go through tables; float16 is computed in single precision.
"""

from collections.abc import Callable, Mapping

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.elementwise.level_functions import through_function
from runtime.ops.support import Array, Kernel, OpContext, levels, operator
from runtime.ops.support.blocks import flat_blocks
from runtime.ops.support.levels import level_table
from runtime.ops.support.quantization import RANGES
from runtime.ops.support.shapes import same_shape

_LEVELS = (TensorType.INT8, TensorType.INT16)
_HALVES = (TensorType.FLOAT32, TensorType.FLOAT16)


def each(op: OpContext, function: Callable[..., object]) -> Kernel:
    """Return a kernel that calls function(x, out=y) on cache-sized pieces."""
    op.require_same_type(0)
    pieces = flat_blocks(op.write(), op.read(0))

    def run() -> None:
        for y, x in pieces:
            function(x, out=y)

    return run


@operator(
    BuiltinOperator.ABS,
    max_version=5,
    infer=same_shape,
    types=(TensorType.FLOAT32, TensorType.INT32, *_LEVELS),
)
def absolute(op: OpContext) -> Kernel:
    """ABS: |x|; quantised types are rescaled to the output's scale (`elementwise.cc`)."""
    op.require_same_type(0)
    if op.input().type in _LEVELS and op.input().quantization is not None:
        return level_table(op, lambda q: levels.absolute(op, q))
    return each(op, np.abs)


_SIGNED = (*_HALVES, TensorType.INT8, TensorType.INT16, TensorType.INT32, TensorType.INT64)


@operator(BuiltinOperator.NEG, max_version=5, infer=same_shape, types=_SIGNED)
def negative(op: OpContext) -> Kernel:
    """NEG: -x; the least integer, which has no positive, stays as it is."""
    return each(op, np.negative)


@operator(BuiltinOperator.SQUARE, max_version=1, infer=same_shape, types=(TensorType.FLOAT32,))
def square(op: OpContext) -> Kernel:
    """SQUARE: x * x; float32."""
    return each(op, np.square)


def _reciprocal_root(x: Array, out: Array) -> None:
    np.sqrt(x, out=out)
    np.divide(np.float32(1), out, out=out)


@operator(BuiltinOperator.EXP, max_version=2, infer=same_shape, types=(TensorType.FLOAT32, *_LEVELS))
def exponential(op: OpContext) -> Kernel:
    """EXP: e to the power of x; float32, int8, int16."""
    op.require_same_type(0)
    return through_function(op, np.exp) if op.input().type in _LEVELS else each(op, np.exp)


@operator(BuiltinOperator.LOG, max_version=2, infer=same_shape, types=(TensorType.FLOAT32, *_LEVELS))
def logarithm(op: OpContext) -> Kernel:
    """LOG: the natural logarithm; levels at and below real zero give the lowest level."""
    op.require_same_type(0)
    if op.input().type not in _LEVELS:
        return each(op, np.log)
    scale, zero = op.scale_and_zero_point(op.output())
    lowest = np.float32(scale) * np.float32(RANGES[op.output().type][0] - zero)
    return through_function(op, lambda x: np.where(x > 0, np.log(x), lowest))


@operator(BuiltinOperator.SQRT, max_version=2, infer=same_shape, types=(TensorType.FLOAT32, *_LEVELS))
def root(op: OpContext) -> Kernel:
    """SQRT: the square root; levels are truncated, and those below real zero raise `ShapeError`."""
    op.require_same_type(0)
    if op.input().type not in _LEVELS:
        return each(op, np.sqrt)
    return of_no_negative(op, level_table(op, lambda q: levels.root(op, q)))


@operator(BuiltinOperator.RSQRT, max_version=3, infer=same_shape, types=(TensorType.FLOAT32, *_LEVELS))
def reciprocal_root(op: OpContext) -> Kernel:
    """RSQRT: 1 / sqrt(x). int8 is computed by Newton's method, and below real zero raises `ShapeError`.

    int16 gives the highest level there instead.
    """
    kind = op.input().type
    op.require_same_type(0)
    if kind is TensorType.INT16:
        scale, zero = op.scale_and_zero_point(op.output())
        highest = np.float32(scale) * np.float32(RANGES[kind][1] - zero)
        return through_function(op, lambda x: np.where(x > 0, np.float32(1) / np.sqrt(x), highest))
    if kind is not TensorType.INT8:
        return each(op, _reciprocal_root)
    return of_no_negative(op, level_table(op, lambda q: levels.reciprocal_root(op, q)))


def of_no_negative(op: OpContext, look_up: Kernel) -> Kernel:
    """Return `look_up` behind a check: it raises `ShapeError` where a level stands for a negative value."""
    _, zero = op.scale_and_zero_point(op.input())
    x = op.read(0)

    def run() -> None:
        if (x < zero).any():
            raise op.error("a root of a negative value")
        look_up()

    return run


_CIRCULAR: Mapping[BuiltinOperator, np.ufunc] = {
    BuiltinOperator.SIN: np.sin,
    BuiltinOperator.COS: np.cos,
}


@operator(*_CIRCULAR, max_version=2, infer=same_shape, types=_HALVES)
def circular(op: OpContext) -> Kernel:
    """SIN and COS of radians; float32, float16."""
    return each(op, _CIRCULAR[op.operator.opcode])


@operator(BuiltinOperator.STABLEHLO_CBRT, max_version=1, infer=same_shape, types=(TensorType.FLOAT32,))
def cube_root(op: OpContext) -> Kernel:
    """STABLEHLO_CBRT: the real cube root; float32."""
    return each(op, np.cbrt)
