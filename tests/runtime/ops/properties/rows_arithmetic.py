"""Operators of two operands that broadcast: arithmetic, division, powers, extrema."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from runtime.model.schema import ActivationFunctionType, BuiltinOperator, TensorType
from tests.runtime.models import Arg, Out, per_tensor
from tests.runtime.ops.properties.rows import Built, Row, within
from tests.runtime.ops.properties.strategies import Operands, broadcast_shapes, shapes

Op = BuiltinOperator
T = TensorType
LEVELS = (T.INT8, T.UINT8, T.INT16)
WHOLE = (T.INT32, T.INT64)
FLOATS = (T.FLOAT32, T.FLOAT16)
ACTIVATIONS = (
    ActivationFunctionType.NONE,
    ActivationFunctionType.RELU,
    ActivationFunctionType.RELU6,
    ActivationFunctionType.RELU_N1_TO_1,
)
RANK = 6


def pair(
    *, activations: bool = False, most: int = RANK, low: float = -100.0, high: float = 100.0
) -> Callable[[DrawFn, Operands], Built]:
    """Two operands of the type, each with a scale of its own where they are levels."""

    def build(draw: DrawFn, o: Operands) -> Built:
        first, second = draw(broadcast_shapes(most=most))
        limited = o.dtype.kind == "c"
        args = [
            o.arg(*s, quantization=o.levels(), low=low, high=high, edges=not limited) for s in (first, second)
        ]
        choice = {"c": ACTIVATIONS[:1], "u": ACTIVATIONS[:3]}.get(o.dtype.kind, ACTIVATIONS)
        choice = ACTIVATIONS if o.is_quantized else choice
        options = {"fused_activation_function": draw(st.sampled_from(choice))} if activations else {}
        return args, [o.out(o.levels())], options

    return build


def powers_of_two(draw: DrawFn, o: Operands) -> Built:
    """int16 with scales that are powers of two, one operand's being the result's, of one shape: LiteRT dies
    where they would have to broadcast."""
    first = second = draw(shapes(most=5))
    scale = 2.0 ** draw(st.integers(-12, -3))
    finer = scale * 2.0 ** -draw(st.integers(0, 6))
    scales = draw(st.permutations([scale, finer]))
    args = [o.arg(*s, quantization=per_tensor(q)) for s, q in zip((first, second), scales, strict=True)]
    options = {"fused_activation_function": draw(st.sampled_from(ACTIVATIONS)), "pot_scale_int16": True}
    return args, [o.out(per_tensor(scale))], options


def rescaled_sum(draw: DrawFn, o: Operands) -> Built:
    """int16 with scales of any ratio."""
    args, outs, options = pair(activations=True)(draw, o)
    scales = [one.quantization.scales[0] for one in (*args, *outs) if one and one.quantization]
    # LiteRT does not rescale where all three are powers of two, and refuses most ratios: `powers_of_two` has
    # those that it takes.
    is_rescaled = any(math.frexp(scale)[0] != 0.5 for scale in scales)
    return args, outs, {**options, "pot_scale_int16": is_rescaled and draw(st.booleans())}


def alike(draw: DrawFn, o: Operands) -> Built:
    """Operands and result of one scale."""
    first, second = draw(broadcast_shapes(most=RANK))
    q = o.levels()
    return [o.arg(*s, quantization=q) for s in (first, second)], [o.out(q)], {}


def divided(*, activations: bool = False, most: int = 4) -> Callable[[DrawFn, Operands], Built]:
    """Draw as `pair` does; an integer divisor is never zero."""

    def build(draw: DrawFn, o: Operands) -> Built:
        args, outs, options = pair(activations=activations, most=most)(draw, o)
        numerator, divisor = args
        assert numerator is not None
        assert divisor is not None
        zero = 0 if divisor.quantization is None else divisor.quantization.zero_points[0]
        values = divisor.value.copy()
        for other in (3, 2, 1):
            values[(values == zero) | (values == 0)] = other
        return [numerator, Arg(values, divisor.quantization, type=o.type)], outs, options

    return build


def raised(draw: DrawFn, o: Operands) -> Built:
    """Integers to powers that are not negative and fit: what does not has no defined value."""
    args, outs, options = pair(most=4)(draw, o)
    base, exponent = args
    assert base is not None
    assert exponent is not None
    if o.dtype.kind == "i":
        base = Arg(base.value % 9 - 4, type=o.type)
        exponent = Arg(exponent.value % 15, type=o.type)
    elif draw(st.booleans()):
        power = draw(st.sampled_from([2.0, 3.0, 0.5, -1.0, 0.0]))
        exponent = Arg(np.full_like(exponent.value, power), type=o.type)
    return [base, exponent], outs, options


def same_shape(draw: DrawFn, o: Operands) -> Built:
    """Two operands of one shape, the only ones for which ATAN2 gives its result a right shape."""
    shape = draw(shapes())
    return [o.arg(*shape), o.arg(*shape)], [o.out()], {}


def several(draw: DrawFn, o: Operands) -> Built:
    shape = draw(shapes())
    return [o.arg(*shape) for _ in range(draw(st.integers(2, 5)))], [Out(o.dtype, type=o.type)], {}


ROWS = [
    Row("broadcast", Op.ADD, (*FLOATS, *WHOLE, T.INT8, T.UINT8), pair(activations=True)),
    Row("powers_of_two", Op.ADD, (T.INT16,), powers_of_two),
    Row("rescaled", Op.ADD, (T.INT16,), rescaled_sum),
    Row("broadcast", Op.SUB, (T.FLOAT32, *WHOLE, T.INT8, T.UINT8), pair(activations=True)),
    Row("powers_of_two", Op.SUB, (T.INT16,), powers_of_two),
    Row("rescaled", Op.SUB, (T.INT16,), rescaled_sum),
    Row(
        "broadcast",
        Op.MUL,
        (*FLOATS, *WHOLE, *LEVELS, T.UINT32, T.COMPLEX64),
        pair(activations=True),
        within(2),
    ),
    Row("broadcast", Op.DIV, (T.FLOAT32, T.INT32, *LEVELS), divided(activations=True)),
    Row("broadcast", Op.SQUARED_DIFFERENCE, (T.FLOAT32, T.INT32, T.INT8), pair()),
    Row("broadcast", Op.MAXIMUM, (*FLOATS, *WHOLE, *LEVELS), alike),
    Row("broadcast", Op.MINIMUM, (*FLOATS, *WHOLE, *LEVELS), alike),
    Row("broadcast", Op.FLOOR_DIV, (T.FLOAT32, T.INT8, T.INT16, T.INT32), divided()),
    Row("broadcast", Op.FLOOR_MOD, (T.FLOAT32, T.INT8, T.INT16, *WHOLE), divided()),
    Row("broadcast", Op.POW, (T.FLOAT32, T.INT32), raised, within()),
    Row("broadcast", Op.ATAN2, (*FLOATS, T.FLOAT64), same_shape, within()),
    Row("several", Op.ADD_N, (T.FLOAT32, T.INT32), several),
]
