"""Functions of each element: activations, roots, exponentials, rounding, signs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from runtime.model.schema import BuiltinOperator, TensorType
from tests.runtime.models import per_tensor
from tests.runtime.ops.properties.rows import PLAIN, Built, Row, of_terms, within
from tests.runtime.ops.properties.strategies import Operands, broadcast_shapes, shapes

Op = BuiltinOperator
T = TensorType
LEVELS = (T.INT8, T.UINT8, T.INT16)
F32 = (T.FLOAT32,)
FLOATS = (T.FLOAT32, T.FLOAT16)


def each(*, low: float = -10.0, high: float = 10.0, **options: Any) -> Callable[[DrawFn, Operands], Built]:
    """One operand of any shape; levels have scales of their own on both sides."""

    def build(draw: DrawFn, o: Operands) -> Built:
        x = o.arg(*draw(shapes(most=5)), quantization=o.levels(), low=low, high=high)
        return [x], [o.out(o.levels())], options

    return build


def not_finer(draw: DrawFn, o: Operands) -> Built:
    """HARD_SWISH: LiteRT refuses levels whose result has a scale below 1/128 of the operand's."""
    x = o.arg(*draw(shapes(most=5)), quantization=o.levels(), low=-10.0, high=10.0)
    least = -8.0 if x.quantization is None else math.log2(x.quantization.scales[0]) - 6.9
    return [x], [o.out(o.levels(max(-8.0, least)))], {}


def scaled_as(int8: tuple[float, int], uint8: tuple[float, int], int16: tuple[float, int]) -> Any:
    """Levels of a result whose scale and zero point the operator dictates."""
    fixed = {T.INT8: per_tensor(*int8), T.UINT8: per_tensor(*uint8), T.INT16: per_tensor(*int16)}

    def build(draw: DrawFn, o: Operands) -> Built:
        x = o.arg(*draw(shapes(most=5)), quantization=o.levels(-12, -1), low=-10.0, high=10.0)
        return [x], [o.out(fixed.get(o.type))], {}

    return build


def power_of_two(draw: DrawFn, o: Operands) -> Built:
    """int16 of the scales that sigmoid and tanh take without rescaling."""
    x = o.arg(*draw(shapes()), quantization=per_tensor(2.0 ** -draw(st.integers(8, 15))))
    return [x], [o.out(per_tensor(1 / 32768))], {}


def positive(draw: DrawFn, o: Operands) -> Built:
    """Levels at or above the zero point, as roots ask for."""
    q = o.levels()
    if q is None:
        return each(low=-1.0, high=1000.0)(draw, o)
    if draw(st.booleans()):
        low = -128 if o.type is T.INT8 else 0
        q = per_tensor(q.scales[0], low)
    x = o.arg(*draw(shapes()), quantization=q)
    x.value[x.value < q.zero_points[0]] = q.zero_points[0]
    return [x], [o.out(o.levels())], {}


def sloped(draw: DrawFn, o: Operands) -> Built:
    alpha = draw(st.sampled_from([0.1, 0.01, 0.3, 1.0, 1.5, 0.0, -0.5]))
    return each(alpha=alpha)(draw, o)


def slopes(draw: DrawFn, o: Operands) -> Built:
    """PRELU: slopes that broadcast to the operand."""
    first, second = draw(broadcast_shapes(most=4))
    part, whole = sorted((first, second), key=lambda s: (math.prod(s), len(s)))
    x = o.arg(*whole, quantization=o.levels(), low=-10.0, high=10.0)
    kind = T.INT8 if o.type is T.INT16 else o.type  # Slopes of int16 are int8.
    slope = Operands(draw, kind)
    alpha = slope.arg(*part, quantization=slope.levels(), low=-1.0, high=1.0)
    return [x, alpha], [o.out(o.levels())], {}


# 1 + tanh cancels; float16 is rounded once more.
CANCELLED = of_terms(lambda inputs: np.abs(inputs[0].astype(np.float64)), 1e-6, 2e-3)
LOGISTIC = scaled_as((1 / 256, -128), (1 / 256, 0), (1 / 32768, 0))
TANH = scaled_as((1 / 128, 0), (1 / 128, 128), (1 / 32768, 0))

ROWS = [
    Row("plain", Op.ABS, (T.FLOAT32, T.INT32, T.INT8, T.INT16), each()),
    Row("plain", Op.NEG, (*FLOATS, T.INT8, T.INT16, T.INT32, T.INT64), each()),
    Row("plain", Op.EXP, (T.FLOAT32, T.INT8, T.INT16), each(), within()),
    Row("plain", Op.LOG, (T.FLOAT32, T.INT8, T.INT16), positive, within()),
    Row("plain", Op.SQRT, (T.FLOAT32, T.INT8, T.INT16), positive, within()),
    Row("plain", Op.RSQRT, (T.FLOAT32, T.INT8, T.INT16), positive, within()),
    Row("plain", Op.SQUARE, F32, each()),
    Row("plain", Op.SIN, FLOATS, each(), within()),
    Row("plain", Op.COS, FLOATS, each(), within()),
    Row("plain", Op.FLOOR, FLOATS, each()),
    Row("plain", Op.CEIL, F32, each(), resolver=PLAIN),
    Row("plain", Op.ROUND, F32, each(), resolver=PLAIN),
    Row("plain", Op.SIGN, (T.FLOAT32, T.FLOAT64, T.INT32), each()),
    Row("plain", Op.LOGICAL_NOT, (T.BOOL,), each()),
    *(
        Row("plain", opcode, types, each())
        for opcode, types in (
            (Op.RELU, (*F32, *LEVELS)),
            (Op.RELU6, (*F32, *LEVELS)),
            (Op.RELU_N1_TO_1, (*F32, T.INT8, T.UINT8)),
            (Op.RELU_0_TO_1, (*F32, T.INT8, T.UINT8)),
        )
    ),
    Row("slopes", Op.LEAKY_RELU, (*F32, *LEVELS), sloped, within()),
    Row("slopes", Op.PRELU, (*F32, *LEVELS), slopes, within()),
    Row("plain", Op.ELU, (T.FLOAT32, T.INT8), each(), within(), resolver=PLAIN),
    Row("exact", Op.GELU, (*F32, *LEVELS), each(approximate=False), within()),
    Row("exact_half", Op.GELU, (T.FLOAT16,), each(approximate=False), CANCELLED),
    Row("approximate", Op.GELU, (*FLOATS, *LEVELS), each(approximate=True), CANCELLED),
    Row("plain", Op.HARD_SWISH, (T.FLOAT32, T.INT8, T.UINT8), not_finer, within()),
    Row("dictated", Op.LOGISTIC, (*FLOATS, *LEVELS), LOGISTIC, within()),
    Row("power_of_two", Op.LOGISTIC, (T.INT16,), power_of_two),
    Row("dictated", Op.TANH, (*FLOATS, *LEVELS), TANH, within()),
    Row("power_of_two", Op.TANH, (T.INT16,), power_of_two),
]
