"""Functions of each element: roots and powers, EXP, LOG, SIN, COS, ABS, NEG, SIGN, roundings, BUCKETIZE.

Levels go through tables; float16 is computed in single precision.
"""

from collections.abc import Callable, Mapping

import numpy as np

from runtime.ops.elementwise.level_functions import through_function
from runtime.ops.support import Array, Kernel, Op, OpContext, TensorType, levels, operator
from runtime.ops.support.blocks import flat_blocks, over
from runtime.ops.support.levels import level_table
from runtime.ops.support.quantization import RANGES
from runtime.ops.support.shapes import same_shape

_LEVELS = (TensorType.INT8, TensorType.INT16)
_SINGLE = (TensorType.FLOAT32,)
_HALVES = (*_SINGLE, TensorType.FLOAT16)
_SIGNED = (*_HALVES, TensorType.INT8, TensorType.INT16, TensorType.INT32, TensorType.INT64)


def _each(op: OpContext, function: Callable[..., object]) -> Kernel:
    """Return a kernel that calls function(x, out=y) on cache-sized pieces."""
    op.require_same_type(0)
    return over(flat_blocks(op.write(), op.read(0)), lambda y, x: function(x, out=y))


def _to_even(x: Array, out: Array) -> None:
    """Round as LiteRT does: what is rounded up to zero becomes +0, only -0 itself stays -0."""
    np.rint(x, out=out)
    np.add(out, np.float32(0), out=out, where=x != out)


_PLAIN: Mapping[Op, tuple[Callable[..., object], int, tuple[TensorType, ...]]] = {
    Op.NEG: (np.negative, 5, _SIGNED),
    Op.SQUARE: (np.square, 1, _SINGLE),
    Op.STABLEHLO_CBRT: (np.cbrt, 1, _SINGLE),
    Op.SIN: (np.sin, 2, _HALVES),
    Op.COS: (np.cos, 2, _HALVES),
    Op.FLOOR: (np.floor, 2, _HALVES),
    Op.CEIL: (np.ceil, 1, _SINGLE),
    Op.ROUND: (_to_even, 1, _SINGLE),
    Op.SIGN: (np.sign, 2, (*_SINGLE, TensorType.FLOAT64, TensorType.INT32)),
}
"""Operators that are one function of an element: the function, the last version, the types."""


def plain(op: OpContext) -> Kernel:
    """Return the kernel of an operator of `_PLAIN`. The negative of the least integer is that integer."""
    return _each(op, _PLAIN[op.operator.opcode][0])


for _opcode, (_, _version, _types) in _PLAIN.items():
    operator(_opcode, max_version=_version, infer=same_shape, types=_types)(plain)


@operator(Op.ABS, max_version=5, infer=same_shape, types=(*_SINGLE, TensorType.INT32, *_LEVELS))
def absolute(op: OpContext) -> Kernel:
    """ABS: |x|; quantised types are rescaled to the output's scale (`elementwise.cc`)."""
    op.require_same_type(0)
    if op.input().type in _LEVELS and op.input().quantization is not None:
        return level_table(op, lambda q: levels.absolute(op, q))
    return _each(op, np.abs)


@operator(Op.EXP, max_version=2, infer=same_shape, types=(*_SINGLE, *_LEVELS))
def exponential(op: OpContext) -> Kernel:
    """EXP: e to the power of x; float32, int8, int16."""
    op.require_same_type(0)
    return through_function(op, np.exp) if op.input().type in _LEVELS else _each(op, np.exp)


@operator(Op.LOG, max_version=2, infer=same_shape, types=(*_SINGLE, *_LEVELS))
def logarithm(op: OpContext) -> Kernel:
    """LOG: the natural logarithm; levels at and below real zero give the lowest level."""
    op.require_same_type(0)
    if op.input().type not in _LEVELS:
        return _each(op, np.log)
    lowest = _real(op, RANGES[op.output().type][0])
    return through_function(op, lambda x: np.where(x > 0, np.log(x), lowest))


def _real(op: OpContext, level: int) -> np.float32:
    """Return the real number for which a level of the output stands."""
    scale, zero = op.scale_and_zero_point(op.output())
    return np.float32(scale) * np.float32(level - zero)


@operator(Op.SQRT, max_version=2, infer=same_shape, types=(*_SINGLE, *_LEVELS))
def root(op: OpContext) -> Kernel:
    """SQRT: the square root; levels are truncated, and those below real zero raise `ShapeError`."""
    op.require_same_type(0)
    if op.input().type not in _LEVELS:
        return _each(op, np.sqrt)
    return _of_no_negative(op, level_table(op, lambda q: levels.root(op, q)))


@operator(Op.RSQRT, max_version=3, infer=same_shape, types=(*_SINGLE, *_LEVELS))
def reciprocal_root(op: OpContext) -> Kernel:
    """RSQRT: 1 / sqrt(x). int8 is computed by Newton's method, and below real zero raises `ShapeError`.

    int16 gives the highest level there instead.
    """
    kind = op.input().type
    op.require_same_type(0)
    if kind is TensorType.INT16:
        highest = _real(op, RANGES[kind][1])
        return through_function(op, lambda x: np.where(x > 0, np.float32(1) / np.sqrt(x), highest))
    if kind is not TensorType.INT8:
        # The output holds the root in between, as a kernel allocates nothing in a run.
        return _each(op, lambda x, out: np.divide(np.float32(1), np.sqrt(x, out=out), out=out))
    return _of_no_negative(op, level_table(op, lambda q: levels.reciprocal_root(op, q)))


def _of_no_negative(op: OpContext, look_up: Kernel) -> Kernel:
    """Return `look_up` behind a check: it raises `ShapeError` where a level stands for a negative value."""
    _, zero = op.scale_and_zero_point(op.input())
    x = op.read(0)

    def run() -> None:
        if (x < zero).any():
            raise op.error("a root of a negative value")
        look_up()

    return run


_TYPES = (TensorType.FLOAT32, TensorType.FLOAT64, TensorType.INT32, TensorType.INT64)


@operator(Op.BUCKETIZE, infer=same_shape, types=_TYPES)
def bucketize(op: OpContext) -> Kernel:
    """BUCKETIZE: the number of boundaries that are at most the value; integers compare in float32."""
    boundaries = np.array(op.option("boundaries"), np.float32)
    if (np.diff(boundaries) < 0).any():
        raise op.error("boundaries are not sorted")
    x, y = op.read(0), op.write()
    compared = x.dtype if x.dtype.kind == "f" else np.dtype(np.float32)
    edges = boundaries.astype(compared)
    return lambda: np.copyto(y, np.searchsorted(edges, x.astype(compared), side="right"), casting="same_kind")
