"""The basic kernel of LSTM: one matrix for all gates over [input, previous output] (`reference/lstm_cell.h`).

Gates lie in the order input, candidate, forget, output. float32; or uint8 with an int16 state of 4 integer
bits, where activations have scale 1 / 128 and zero point 128.
"""

from dataclasses import dataclass

import numpy as np

from runtime.model.schema import ActivationFunctionType
from runtime.ops.recurrent import fixed_point
from runtime.ops.recurrent.gates import sigmoid, weights
from runtime.ops.support import Array, Kernel, OpContext, Shape, TensorType
from runtime.ops.support.quantization import (
    quantize_multiplier,
    rounding_shift_right,
    saturating_doubling_high_mul,
)

_INPUT, _PREVIOUS, _WEIGHTS, _BIAS, _STATE = range(5)
STATE_BITS = 4
"""Integer bits of the quantised state: LiteRT's kernel asks for a scale of 2^(4 - 15), range [-16, 16)."""


def basic_lstm_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return output and state [batch, units], then the scratch outputs: the joined input, the gates' sums."""
    x, previous, matrix, bias, state = (op.input(i).shape for i in range(5))
    if len(x) != 2 or len(previous) != 2 or state != previous or previous[0] != x[0]:
        raise op.error(f"input {list(x)}, previous output {list(previous)}, state {list(state)}")
    batch, units = previous
    joined = x[1] + units
    if matrix != (4 * units, joined) or bias != (4 * units,):
        raise op.error(f"weights {list(matrix)} and bias {list(bias)} for {units} units")
    return (previous, previous, (batch, joined), (batch, 4 * units))


def basic_lstm(op: OpContext) -> Kernel:
    """Return the kernel of one step; its outputs become the next run's previous output and state."""
    if op.option("fused_activation_function") is not ActivationFunctionType.TANH:
        raise op.unsupported("the basic kernel without TANH")
    return _integer(op) if op.input().type is TensorType.UINT8 else _real(op)


def _real(op: OpContext) -> Kernel:
    """Return the kernel of floats; gates are copies, so that the scratch output 3 keeps their sums."""
    x, previous, state = op.read(_INPUT), op.read(_PREVIOUS), op.read(_STATE)
    y, after, joined, sums = (op.write(i) for i in range(4))
    matrix = weights(op, _WEIGHTS, op.input(_WEIGHTS).shape).T
    bias = weights(op, _BIAS, op.input(_BIAS).shape)

    def run() -> None:
        np.concatenate([x, previous], axis=1, out=joined)
        np.matmul(joined, matrix, out=sums)
        np.add(sums, bias, out=sums)
        given, candidate, forget, output = (g.copy() for g in np.split(sums, 4, axis=1))
        for gate in (given, forget, output):
            sigmoid(gate)
        np.add(given * np.tanh(candidate), forget * state, out=after)
        np.multiply(output, np.tanh(after), out=y)
        np.copyto(previous, y)
        np.copyto(state, after)

    return run


@dataclass(frozen=True, slots=True)
class BasicScaling:
    """Zero points of inputs and weights, and the factor multiplier * 2^(shift - 31) of the gates' sums."""

    input_zero: int
    weight_zero: int
    multiplier: int
    shift: int


def basic_scaling(op: OpContext) -> BasicScaling:
    """Read the scales of the kernel of uint8. Raises `UnsupportedOperatorError` for other ones.

    The gates' sums have 3 integer bits, scale 2^-12 = 1 / 4096.
    """
    for i, wanted in ((_WEIGHTS, TensorType.UINT8), (_BIAS, TensorType.INT32), (_STATE, TensorType.INT16)):
        op.require(wanted, i=i)
    for value in (op.input(_INPUT), op.input(_PREVIOUS), op.output()):
        if op.scale_and_zero_point(value) != (1 / 128, 128):
            raise op.unsupported("uint8 activations that are not of scale 1/128 and zero point 128")
    if op.scale_and_zero_point(op.input(_STATE)) != (2.0 ** (STATE_BITS - 15), 0):
        raise op.unsupported("a state that is not of scale 1/2048")
    _, zero = op.scale_and_zero_point(op.input(_WEIGHTS))
    bias_scale, _ = op.scale_and_zero_point(op.input(_BIAS))
    return BasicScaling(128, zero, *quantize_multiplier(4096 * bias_scale))


def _integer(op: OpContext) -> Kernel:
    """Return the kernel of uint8; products of bytes are summed in float64, which is exact."""
    form = basic_scaling(op)
    x, previous, state = op.read(_INPUT), op.read(_PREVIOUS), op.read(_STATE)
    y, after, joined, sums = (op.write(i) for i in range(4))
    matrix = (op.constant(_WEIGHTS, "weights").astype(np.float64) - form.weight_zero).T
    bias = op.constant(_BIAS, "bias").astype(np.int64)

    def run() -> None:
        np.concatenate([x, previous], axis=1, out=joined)
        total = ((joined - np.float64(form.input_zero)) @ matrix).astype(np.int64) + bias
        sums[:] = fixed_point.narrow(_scaled(total, form.multiplier, form.shift))
        fresh, output = _integer_state(sums, state.astype(np.int64))
        after[:] = fresh
        # From 15 fractional bits to the 7 of scale 1/128.
        y[:] = fixed_point.narrow_to_byte(rounding_shift_right(output, 8)) + 128
        np.copyto(previous, y)
        np.copyto(state, after)

    return run


def _scaled(x: Array, multiplier: int, shift: int) -> Array:
    """Return x * multiplier * 2^(shift - 31) with the roundings of this kernel's matrix product.

    The matrix library that LiteRT calls here rounds twice, both times with ties upwards.
    """
    right = max(-shift, 0)
    high = saturating_doubling_high_mul(x << max(shift, 0), multiplier)
    return (high + ((1 << right) >> 1)) >> right


def _integer_state(sums: Array, state: Array) -> tuple[Array, Array]:
    """Return (new state with 4 integer bits, output with none), both int64 [batch, units]."""
    parts = np.split(sums, 4, axis=1)
    given, forget, output = (fixed_point.look_up(fixed_point.sigmoid_table(), parts[i]) for i in (0, 2, 3))
    candidate = fixed_point.look_up(fixed_point.tanh_table(3), parts[1])
    fresh = rounding_shift_right(fixed_point.times(given, candidate), STATE_BITS)
    kept = fixed_point.narrow(fresh + fixed_point.times(forget, state))
    return kept, fixed_point.times(output, fixed_point.look_up(fixed_point.tanh_table(STATE_BITS), kept))
