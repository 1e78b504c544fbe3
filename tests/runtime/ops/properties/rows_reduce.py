"""Along axes: reductions, positions of extrema, running sums, softmax, normalisation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from runtime.model.schema import BuiltinOperator, TensorType
from tests.runtime.models import Arg, Out, per_tensor
from tests.runtime.ops.properties.rows import PLAIN, Built, Row, of_terms, within
from tests.runtime.ops.properties.strategies import Operands, fixed_or_fed, index_type, shapes

Op = BuiltinOperator
T = TensorType
LEVELS = (T.INT8, T.UINT8, T.INT16)
WHOLE = (T.INT32, T.INT64)
F32 = (T.FLOAT32,)
# The sum of the magnitudes of all elements bounds that of any part of them.
SUMS = of_terms(lambda inputs: float(np.abs(inputs[0][np.isfinite(inputs[0])].astype(np.float64)).sum()))


def reduced(
    *, alike: bool = False, finite: bool = False, low: float = -100.0, high: float = 100.0
) -> Callable[[DrawFn, Operands], Built]:
    """Over any axes, some twice or counted from behind; `alike`: the result has the operand's scale."""

    def build(draw: DrawFn, o: Operands) -> Built:
        shape = draw(shapes(least=1, most=5))
        axes = draw(st.lists(st.integers(-len(shape), len(shape) - 1), max_size=len(shape)))
        q = o.levels()
        x = o.arg(*shape, quantization=q, finite=finite, low=low, high=high)
        out = o.out(q if alike else o.levels())
        return [x, fixed_or_fed(draw, axes, np.int32)], [out], {"keep_dims": draw(st.booleans())}

    return build


def multiplied(draw: DrawFn, o: Operands) -> Built:
    """Levels whose real values are below 1: what leaves 32 bits on the way is not defined."""
    args, _, options = reduced()(draw, o)
    x = args[0]
    assert x is not None
    finest = {T.INT8: (-8, -7), T.INT16: (-16, -15)}.get(o.type, (0, 0))
    args = [o.arg(*x.value.shape, quantization=o.levels(*finest)), *args[1:]]
    return args, [o.out(o.levels(-3, 0))], options


def found(draw: DrawFn, o: Operands) -> Built:
    """ARG_MAX and ARG_MIN."""
    shape = draw(shapes(least=1))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    dtype, kind = draw(st.sampled_from([(np.int32, T.INT32), (np.int64, T.INT64)]))
    # Which index LiteRT finds beside a NaN depends on the length of the axis.
    x = o.arg(*shape, quantization=o.levels(), finite=True)
    return [x, fixed_or_fed(draw, axis, index_type(draw))], [Out(dtype)], {"output_type": kind}


def running(draw: DrawFn, o: Operands) -> Built:
    """CUMSUM."""
    shape = draw(shapes(least=1))
    axis = Arg(np.asarray(draw(st.integers(-len(shape), len(shape) - 1)), np.int32), constant=True)
    options = {"exclusive": draw(st.booleans()), "reverse": draw(st.booleans())}
    return [o.arg(*shape, finite=True), axis], [o.out()], options


def classes(draw: DrawFn, o: Operands, least: float = -8.0, most: float = 0.0) -> Arg:
    """[.., classes] of levels or floats."""
    shape = (*draw(shapes(least=0, most=3, side=4)), draw(st.sampled_from([1, 2, 3, 10, 100])))
    finite = draw(st.booleans())
    return o.arg(*shape, quantization=o.levels(least, most), finite=finite, low=-20.0, high=20.0)


def softmax_to(**outs: tuple[float, int]) -> Callable[[DrawFn, Operands], Built]:
    def build(draw: DrawFn, o: Operands) -> Built:
        x = classes(draw, o, -6, 0)
        options = {"beta": draw(st.sampled_from([1.0, 1.0, 0.5, 2.0]))}
        fixed = outs.get(o.type.name)
        return [x], [o.out(None if fixed is None else per_tensor(*fixed))], options

    return build


def softmax_widened(draw: DrawFn, o: Operands) -> Built:
    """8-bit levels to int16."""
    out = Out(np.int16, per_tensor(1 / 65536, -32768))
    return [classes(draw, o, -6, 0)], [out], {"beta": 1.0}


def log_softmax(draw: DrawFn, o: Operands) -> Built:
    fixed = {T.INT8: per_tensor(16 / 256, 127), T.UINT8: per_tensor(16 / 256, 255)}
    return [classes(draw, o, -6, 0)], [o.out(fixed.get(o.type))], {}


def unit_norm(draw: DrawFn, o: Operands) -> Built:
    fixed = {T.INT8: per_tensor(1 / 128, 0), T.UINT8: per_tensor(1 / 128, 128)}
    shape = draw(shapes(least=1, side=6))
    x = o.arg(*shape, quantization=o.levels(), finite=True)
    return [x], [o.out(fixed.get(o.type))], {}


def local_response(draw: DrawFn, o: Operands) -> Built:
    shape = (*draw(shapes(least=3, most=3, side=3)), draw(st.integers(1, 12)))
    x = o.arg(*shape, finite=True, low=-5.0, high=5.0)
    options = {
        "radius": draw(st.integers(0, 8)),
        "bias": draw(st.sampled_from([1.0, 2.0])),
        "alpha": draw(st.sampled_from([1e-4, 0.1, 1.0])),
        "beta": draw(st.sampled_from([0.5, 0.75, 1.0])),
    }
    return [Arg(np.clip(x.value, -1e4, 1e4))], [o.out()], options


def products(ours: np.ndarray, theirs: np.ndarray, inputs: Sequence[np.ndarray]) -> None:
    """Each product of n factors rounds n times."""
    within(units=float(4 + math.prod(inputs[0].shape)), absolute=0.0)(ours, theirs, inputs)


ROWS = [
    Row("axes", Op.SUM, (*F32, *WHOLE, T.UINT8, T.BOOL), reduced(finite=True), SUMS),
    # The reference resolver's int8 and int16 sums are whatever the memory held before.
    Row("levels", Op.SUM, (T.INT8, T.INT16), reduced(finite=True), resolver=PLAIN),
    Row("infinities", Op.SUM, F32, reduced(), SUMS),
    Row("axes", Op.MEAN, (*F32, *WHOLE, *LEVELS), reduced(finite=True), SUMS),
    Row("axes", Op.REDUCE_PROD, (*F32, *WHOLE), reduced(low=0.5, high=2.0), products),
    Row("levels", Op.REDUCE_PROD, (T.INT8, T.INT16, T.BOOL), multiplied),
    Row("axes", Op.REDUCE_MAX, (*F32, *WHOLE, *LEVELS, T.BOOL), reduced(alike=True)),
    Row("axes", Op.REDUCE_MIN, (*F32, *WHOLE, *LEVELS, T.BOOL), reduced(alike=True)),
    Row("axes", Op.REDUCE_ANY, (T.BOOL,), reduced()),
    Row("axes", Op.REDUCE_ALL, (T.BOOL,), reduced()),
    Row("axis", Op.ARG_MAX, (*F32, T.INT8, T.UINT8, T.INT32, T.BOOL), found),
    Row("axis", Op.ARG_MIN, (*F32, T.INT8, T.UINT8, T.INT32, T.BOOL), found),
    Row("axis", Op.CUMSUM, (*F32, *WHOLE), running, SUMS),
    Row(
        "classes",
        Op.SOFTMAX,
        (*F32, T.FLOAT16, *LEVELS),
        softmax_to(INT8=(1 / 256, -128), UINT8=(1 / 256, 0), INT16=(1 / 32768, 0)),
        within(8),
    ),
    Row("widened", Op.SOFTMAX, (T.INT8, T.UINT8), softmax_widened),
    Row("classes", Op.LOG_SOFTMAX, (*F32, T.INT8, T.UINT8), log_softmax, within(8, 1e-6)),
    Row("last_axis", Op.L2_NORMALIZATION, (*F32, T.INT8, T.UINT8), unit_norm, within(8)),
    Row("channels", Op.LOCAL_RESPONSE_NORMALIZATION, F32, local_response, within(8)),
]
