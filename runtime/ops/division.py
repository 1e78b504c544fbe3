"""FLOOR_DIV, FLOOR_MOD, POW and ATAN2, broadcast."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.blocks import broadcast_blocks
from runtime.ops.shapes import broadcast_inputs
from runtime.ops.spec import Array, Kernel, OpContext, operator

_INTEGERS = (TensorType.INT8, TensorType.INT16, TensorType.INT32, TensorType.INT64)


@operator(
    BuiltinOperator.FLOOR_DIV,
    BuiltinOperator.FLOOR_MOD,
    max_version=3,
    infer=broadcast_inputs,
    types=(TensorType.FLOAT32, *_INTEGERS),
)
def floor_division(op: OpContext) -> Kernel:
    """The quotient rounded down, or what remains, with the divisor's sign. An integer zero is an error."""
    kind = op.require(TensorType.FLOAT32, *_INTEGERS)
    op.require(kind, i=1)
    divisor = op.read(1)
    pieces = broadcast_blocks(op.write(), op.read(0), divisor)
    is_float = kind is TensorType.FLOAT32
    divide = _DIVISIONS[op.operator.opcode, is_float]

    def run() -> None:
        if not is_float and not divisor.all():
            raise op.error("division by zero")
        for y, x, z in pieces:
            divide(x, z, out=y)

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
    """x to the power of z; an integer exponent below zero is an error."""
    kind = op.require(TensorType.FLOAT32, TensorType.INT32)
    op.require(kind, i=1)
    exponent = op.read(1)
    pieces = broadcast_blocks(op.write(), op.read(0), exponent)

    def run() -> None:
        if kind is TensorType.INT32 and (exponent < 0).any():
            raise op.error("an integer to a negative power")
        for y, x, z in pieces:
            np.power(x, z, out=y)

    return run


@operator(
    BuiltinOperator.ATAN2,
    max_version=1,
    infer=broadcast_inputs,
    types=(TensorType.FLOAT32, TensorType.FLOAT64),
)
def arc_tangent(op: OpContext) -> Kernel:
    """The angle of (z, x) in radians, -pi to pi."""
    kind = op.require(TensorType.FLOAT32, TensorType.FLOAT64)
    op.require(kind, i=1)
    pieces = broadcast_blocks(op.write(), op.read(0), op.read(1))

    def run() -> None:
        for y, x, z in pieces:
            np.arctan2(x, z, out=y)

    return run
