"""FLOOR_DIV, FLOOR_MOD, POW and ATAN2, broadcast."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.support.blocks import broadcast_blocks, pairwise
from runtime.ops.support.context import Kernel, OpContext
from runtime.ops.support.fused_activation import clamp_floats
from runtime.ops.support.registry import operator
from runtime.ops.support.shapes import broadcast_inputs
from runtime.ops.support.value import Array

_INT32_RANGE = 2.0**31
_NEAR_INTEGER = 1e-5
_INTEGERS = (TensorType.INT8, TensorType.INT16, TensorType.INT32, TensorType.INT64)


@operator(
    BuiltinOperator.FLOOR_DIV,
    BuiltinOperator.FLOOR_MOD,
    max_version=3,
    infer=broadcast_inputs,
    types=(TensorType.FLOAT32, *_INTEGERS),
)
def floor_division(op: OpContext) -> Kernel:
    """The quotient rounded down, or what remains, with the divisor's sign. Division by zero is an error.

    Only a remainder of floats by zero is NaN.
    """
    kind = op.require(TensorType.FLOAT32, *_INTEGERS)
    op.require(kind, i=1)
    divisor = op.read(1)
    is_float = kind is TensorType.FLOAT32
    divide = pairwise(op, _DIVISIONS[op.operator.opcode, is_float])
    may_be_zero = is_float and op.operator.opcode is BuiltinOperator.FLOOR_MOD

    def run() -> None:
        if not may_be_zero and not divisor.all():
            raise op.error("division by zero")
        divide()

    return run


def _floor_quotient(x: Array, z: Array, out: Array) -> None:
    """floor(x / z) with the quotient rounded first (`reference/floor_div.h`)."""
    np.divide(x, z, out=out)
    np.floor(out, out=out)


def _floor_remainder(x: Array, z: Array, out: Array) -> None:
    """C's remainder, moved by the divisor where the signs differ (`reference/floor_mod.h`)."""
    rest = np.fmod(x, z)
    np.copyto(out, np.where((rest != 0) & ((z < 0) != (rest < 0)), rest + z, rest))


_DIVISIONS: Mapping[tuple[BuiltinOperator, bool], Callable[..., object]] = {
    (BuiltinOperator.FLOOR_DIV, True): _floor_quotient,
    (BuiltinOperator.FLOOR_DIV, False): np.floor_divide,
    (BuiltinOperator.FLOOR_MOD, True): _floor_remainder,
    (BuiltinOperator.FLOOR_MOD, False): np.remainder,
}


@operator(
    BuiltinOperator.POW, max_version=1, infer=broadcast_inputs, types=(TensorType.FLOAT32, TensorType.INT32)
)
def power(op: OpContext) -> Kernel:
    """x to the power of z; an integer exponent below zero is an error.

    Integers go through double precision, and what does not fit becomes the least one. Where there is one
    exponent for all, an integer, it is multiplied out instead.
    """
    kind = op.require(TensorType.FLOAT32, TensorType.INT32)
    op.require(kind, i=1)
    exponent = op.read(1)
    pieces = broadcast_blocks(op.write(), op.read(0), exponent)
    is_float = kind is TensorType.FLOAT32
    alone = exponent.size == 1 and exponent.shape != op.input().shape

    def run() -> None:
        if not is_float and (exponent < 0).any():
            raise op.error("an integer to a negative power")
        power = round(float(exponent.flat[0])) if alone and np.isfinite(exponent.flat[0]) else 0
        by_products = power >= 1 and abs(exponent.flat[0] - power) < _NEAR_INTEGER
        for y, x, z in pieces:
            if by_products:
                _multiply_out(x, power, y)
            elif is_float:
                np.power(x, z, out=y)
                np.copyto(y, np.inf, where=(x == -np.inf) & (z == 0.5))
            else:
                wide = np.power(x.astype(np.float64), z)
                fits = np.abs(wide) < _INT32_RANGE
                np.copyto(y, np.where(fits, wide, -_INT32_RANGE), casting="unsafe")

    return run


def _multiply_out(x: Array, power: int, y: Array) -> None:
    """One exponent for all, an integer: by squares, each kept within the range of floats."""
    if power == 1:
        np.copyto(y, x)
        return
    _multiply_out(x, power // 2, y)
    for factor in (y, x)[: 1 + power % 2]:
        np.multiply(y, factor, out=y)
        if y.dtype.kind == "f":
            clamp_floats(y, None)


_ANGLES = (TensorType.FLOAT32, TensorType.FLOAT16, TensorType.FLOAT64)


@operator(
    BuiltinOperator.ATAN2,
    max_version=1,
    infer=broadcast_inputs,
    types=_ANGLES,
)
def arc_tangent(op: OpContext) -> Kernel:
    """The angle of (z, x) in radians, -pi to pi."""
    kind = op.require(*_ANGLES)
    op.require(kind, i=1)
    return pairwise(op, np.arctan2)
