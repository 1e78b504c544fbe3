"""Comparisons, logic, bits, choices between two operands, and their StableHLO kin."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from runtime.model.schema import BuiltinOperator, TensorType
from tests.runtime.models import Arg, Out
from tests.runtime.ops.every_type import TYPES
from tests.runtime.ops.properties.rows import PLAIN, Built, Row
from tests.runtime.ops.properties.strategies import Operands, broadcast_shapes, shapes

Op = BuiltinOperator
T = TensorType
ORDERED = (T.FLOAT32, T.FLOAT16, T.INT32, T.INT64, T.INT8, T.UINT8, T.INT16)
BITS = (T.INT8, T.UINT8, T.INT16, T.UINT16, T.INT32, T.UINT32)
STABLEHLO = (
    T.FLOAT32,
    T.FLOAT16,
    T.FLOAT64,
    T.BOOL,
    T.INT8,
    T.INT16,
    T.INT32,
    T.INT64,
    T.UINT8,
    T.UINT16,
    T.UINT32,
    T.UINT64,
)
MOVED = tuple(t for t in TYPES if t is not T.STRING)
MOST = 4


def compared(*, scaled: bool) -> Callable[[DrawFn, Operands], Built]:
    """Two operands with many equal elements, levels each with a scale or all without."""

    def build(draw: DrawFn, o: Operands) -> Built:
        sides = draw(broadcast_shapes(most=MOST))
        if o.type is T.STRING:
            sides = [side or (1,) for side in sides]
        args = [o.arg(*s, quantization=o.levels(-8, -0.01) if scaled else None) for s in sides]
        if draw(st.booleans()):
            values = o.array(*args[0].value.shape)
            args[1] = Arg(values.copy(), args[0].quantization, type=o.type)
            args[0] = Arg(values, args[0].quantization, type=o.type)
        return args, [Out(np.bool_)], {}

    return build


def pair(draw: DrawFn, o: Operands) -> Built:
    return [o.arg(*s) for s in draw(broadcast_shapes(most=MOST))], [o.out()], {}


def alike(draw: DrawFn, o: Operands) -> Built:
    """Two operands of one shape."""
    shape = draw(shapes())
    return [o.arg(*shape), o.arg(*shape)], [o.out()], {}


def shifted(*, broadcast: bool) -> Callable[[DrawFn, Operands], Built]:
    """Draw an operand and its shift: any to the right, within the type to the left."""

    def build(draw: DrawFn, o: Operands) -> Built:
        shape = draw(shapes())
        first, second = draw(broadcast_shapes(most=MOST)) if broadcast else (shape, shape)
        bits = o.array(*second)
        if not broadcast or draw(st.booleans()):
            bits = (bits % (8 * o.dtype.itemsize)).astype(o.dtype)
        return [o.arg(*first), Arg(bits, type=o.type)], [o.out()], {}

    return build


def chosen(draw: DrawFn, o: Operands) -> Built:
    """SELECT: a flag for each element, one for each row, or one for all."""
    shape = draw(shapes())
    flags = draw(st.sampled_from([shape, shape[:1], ()]))
    condition = Arg(draw_flags(draw, flags))
    return [condition, o.arg(*shape), o.arg(*shape)], [Out(o.dtype, type=o.type, shape=shape)], {}


def chosen_broadcast(draw: DrawFn, o: Operands) -> Built:
    flags, first, second = draw(broadcast_shapes(count=3, most=MOST))
    out = Out(o.dtype, type=o.type, shape=np.broadcast_shapes(flags, first, second))
    return [Arg(draw_flags(draw, flags)), o.arg(*first), o.arg(*second)], [out], {}


def draw_flags(draw: DrawFn, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(draw(st.integers(0, 999))).integers(0, 2, shape).astype(np.bool_)


ROWS = [
    *(
        Row("scaled", opcode, ORDERED, compared(scaled=True))
        for opcode in (Op.GREATER, Op.GREATER_EQUAL, Op.LESS, Op.LESS_EQUAL)
    ),
    *(
        Row("scaled", opcode, (*ORDERED, T.BOOL, T.STRING), compared(scaled=True))
        for opcode in (Op.EQUAL, Op.NOT_EQUAL)
    ),
    *(Row("broadcast", opcode, (T.BOOL,), pair) for opcode in (Op.LOGICAL_AND, Op.LOGICAL_OR)),
    Row("broadcast", Op.BITWISE_XOR, BITS, pair),
    Row("broadcast", Op.RIGHT_SHIFT, BITS, shifted(broadcast=True)),
    Row("conditions", Op.SELECT, MOVED, chosen),
    Row("broadcast", Op.SELECT_V2, MOVED, chosen_broadcast),
    *(
        Row("alike", opcode, STABLEHLO, alike)
        for opcode in (Op.STABLEHLO_ADD, Op.STABLEHLO_MULTIPLY, Op.STABLEHLO_MAXIMUM, Op.STABLEHLO_MINIMUM)
    ),
    Row("alike", Op.STABLEHLO_AND, (T.INT8, T.INT16, T.INT32, T.INT64, T.BOOL), alike, resolver=PLAIN),
    Row(
        "alike",
        Op.STABLEHLO_SHIFT_LEFT,
        (T.INT8, T.INT16, T.INT32),
        shifted(broadcast=False),
        resolver=PLAIN,
    ),
]
