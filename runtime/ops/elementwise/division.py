"""FLOOR_DIV, FLOOR_MOD, POW and ATAN2, broadcast."""

from collections.abc import Callable, Mapping

import numpy as np

from runtime.ops.elementwise.arithmetic import by_no_zero
from runtime.ops.support import Array, Kernel, Op, OpContext, TensorType, operator
from runtime.ops.support.blocks import broadcast_blocks, pairs_of_one_type
from runtime.ops.support.fused_activation import clamp_floats
from runtime.ops.support.shapes import broadcast_inputs

_INT32_RANGE = 2.0**31
"""The least magnitude that int32 cannot hold: casting such a float gives the least integer, as x86 does."""

_NEAR_INTEGER = 1e-5
"""Distance from an integer within which a single exponent counts as that integer (`epsilon` of BroadcastPow4D
in LiteRT's `optimized_ops.h`)."""

_INTEGERS = (TensorType.INT8, TensorType.INT16, TensorType.INT32, TensorType.INT64)


@operator(
    Op.FLOOR_DIV, Op.FLOOR_MOD, max_version=3, infer=broadcast_inputs, types=(TensorType.FLOAT32, *_INTEGERS)
)
def floor_division(op: OpContext) -> Kernel:
    """FLOOR_DIV: the quotient rounded down; FLOOR_MOD: the remainder, with the divisor's sign.

    Division by zero raises `ShapeError` at run time, but for FLOOR_MOD of floats, which gives NaN.
    """
    is_float = op.input().type is TensorType.FLOAT32
    divide = pairs_of_one_type(op, _DIVISIONS[op.operator.opcode, is_float])
    return by_no_zero(op, divide, allowed=is_float and op.operator.opcode is Op.FLOOR_MOD)


def _floor_quotient(x: Array, z: Array, out: Array) -> None:
    """Write floor(x / z) of the quotient in double precision (`reference/floor_div.h`).

    A quotient in single precision may round up to the next integer, or to zero from below.
    """
    np.copyto(out, np.floor(np.divide(x, z, dtype=np.float64)), casting="same_kind")


def _floor_remainder(x: Array, z: Array, out: Array) -> None:
    """Write C's remainder, plus the divisor where their signs differ (`reference/floor_mod.h`)."""
    rest = np.fmod(x, z)
    np.copyto(out, np.where((rest != 0) & ((z < 0) != (rest < 0)), rest + z, rest))


_DIVISIONS: Mapping[tuple[Op, bool], Callable[..., object]] = {
    (Op.FLOOR_DIV, True): _floor_quotient,
    (Op.FLOOR_DIV, False): np.floor_divide,
    (Op.FLOOR_MOD, True): _floor_remainder,
    (Op.FLOOR_MOD, False): np.remainder,
}


@operator(Op.POW, infer=broadcast_inputs, types=(TensorType.FLOAT32, TensorType.INT32))
def power(op: OpContext) -> Kernel:
    """POW: x to the power of z, broadcast; float32, int32. A negative exponent of an integer is an error.

    Integers go through double precision, and a power that does not fit int32 becomes the least integer. Where
    there is one exponent for all, an integer, x is multiplied out instead, as in `optimized_ops.h`.
    """
    op.require_operands(1)
    exponent, is_float = op.read(1), op.input().type is TensorType.FLOAT32
    pieces = broadcast_blocks(op.write(), op.read(0), exponent)
    # Only LiteRT's broadcasting kernel multiplies out; operands of one shape go to `pow`, single elements
    # too.
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
                # numpy may take a square root for pow(x, 0.5): NaN of -inf, -0 of -0. C gives +inf and +0.
                np.copyto(y, np.inf, where=(x == -np.inf) & (z == 0.5))
                np.copyto(y, np.float32(0), where=(x == 0) & (z == 0.5))
            else:
                wide = np.power(x.astype(np.float64), z)
                fits = np.abs(wide) < _INT32_RANGE
                np.copyto(y, np.where(fits, wide, -_INT32_RANGE), casting="unsafe")

    return run


def _multiply_out(x: Array, power: int, y: Array) -> None:
    """Write x to an integer power, by squares; each product of floats is clamped to the finite range."""
    if power == 1:
        np.copyto(y, x)
        return
    _multiply_out(x, power // 2, y)
    for factor in (y, x)[: 1 + power % 2]:
        np.multiply(y, factor, out=y)
        if y.dtype.kind == "f":
            clamp_floats(y, None)


@operator(
    Op.ATAN2, infer=broadcast_inputs, types=(TensorType.FLOAT32, TensorType.FLOAT16, TensorType.FLOAT64)
)
def arc_tangent(op: OpContext) -> Kernel:
    """ATAN2: the angle of the point (z, x) in radians, -pi to pi, broadcast."""
    return pairs_of_one_type(op, np.arctan2)
