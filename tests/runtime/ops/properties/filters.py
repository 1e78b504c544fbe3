"""Operands of the matmul family: activations, filters, biases and results of every kind that LiteRT takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from runtime.model.graph import Quantization
from runtime.model.schema import ActivationFunctionType, TensorType
from tests.runtime.models import Arg, Out, per_tensor
from tests.runtime.ops.properties.strategies import RANGES, Operands

F32, I8, U8, I16 = TensorType.FLOAT32, TensorType.INT8, TensorType.UINT8, TensorType.INT16
I32, I64, I4, I2 = TensorType.INT32, TensorType.INT64, TensorType.INT4, TensorType.INT2
ACTIVATIONS = (
    ActivationFunctionType.NONE,
    ActivationFunctionType.RELU,
    ActivationFunctionType.RELU6,
    ActivationFunctionType.RELU_N1_TO_1,
)
_NUMPY = {
    F32: np.float32,
    I8: np.int8,
    U8: np.uint8,
    I16: np.int16,
    I32: np.int32,
    I64: np.int64,
    I4: np.int8,
    I2: np.int8,
}
_FILTERS = {I8: (-127, 127), U8: (0, 255), I16: (-32767, 32767), I4: (-7, 7), I2: (-2, 1)}


@dataclass(frozen=True)
class Kind:
    """Types of activations, filter and bias (None: without), and whether each channel has a scale."""

    name: str
    data: TensorType
    filter: TensorType
    bias: TensorType | None
    by_channel: bool = False
    result: TensorType | None = None

    @property
    def options(self) -> dict[str, TensorType]:
        """The options by which a file sets the width of integer sums."""
        if self.data is not I16:
            return {}
        return {"quantized_bias_type": I64 if self.bias is not I32 else I32}


FLOAT = Kind("float", F32, F32, F32)
HYBRID = Kind("hybrid", F32, I8, F32)
HYBRID_CHANNELS = Kind("hybrid_channels", F32, I8, F32, by_channel=True)
HYBRID_INT4 = Kind("hybrid_int4", F32, I4, F32)
INT8 = Kind("int8", I8, I8, I32)
INT8_CHANNELS = Kind("int8_channels", I8, I8, I32, by_channel=True)
INT4_CHANNELS = Kind("int4_channels", I8, I4, I32, by_channel=True)
INT2_CHANNELS = Kind("int2_channels", I8, I2, I32, by_channel=True)
HYBRID_INT2 = Kind("hybrid_int2", F32, I2, F32)
UINT8 = Kind("uint8", U8, U8, I32)
UINT8_TO_INT16 = Kind("uint8_to_int16", U8, U8, I32, result=I16)
INT16 = Kind("int16", I16, I8, I64, by_channel=True)
INT16_BIAS32 = Kind("int16_bias32", I16, I8, I32, by_channel=True)
INT16_INT4 = Kind("int16_int4", I16, I4, I64, by_channel=True)
INT16_INT2 = Kind("int16_int2", I16, I2, I64, by_channel=True)
INT16_BOTH = Kind("int16_both", I16, I16, I64)


@dataclass(frozen=True)
class Drawn:
    """Operands of one example; `bias` None: left out."""

    data: Arg
    filter: Arg
    bias: Arg | None
    out: Out


def drawn(
    o: Operands,
    kind: Kind,
    data: Sequence[int],
    weights: Sequence[int],
    axis: int,
    depth: int,
    *,
    constant: bool = True,
    always_bias: bool = False,
) -> Drawn:
    """Operands of the shapes given; `axis` counts the filter's output channels, `depth` terms make a sum."""
    draw, rng = o.draw, np.random.default_rng(o.draw(st.integers(0, 2**32 - 1)))
    channels = weights[axis]
    x, in_scale = _data(draw, rng, kind, data)
    w, scales = _filter(draw, rng, kind, weights, axis, constant=constant)
    # About the deviation of a sum in levels of the result's own scale.
    spread = np.sqrt(depth) * (0.5 * RANGES[kind.data][1] if kind.data is not F32 else 1.0)
    spread *= 0.5 * (_FILTERS[kind.filter][1] if kind.filter is not F32 else 1.0)
    bias = None
    if kind.bias is not None and (always_bias or draw(st.integers(0, 9))):
        values = rng.normal(0, spread, channels) * draw(st.sampled_from([0.0, 0.3, 2.0]))
        if kind.data is F32:
            values = values * (in_scale * scales)
        form = None if kind.data is F32 else _products(in_scale, scales)
        fixed = constant or draw(st.booleans())
        bias = Arg(values.astype(_NUMPY[kind.bias]), form, constant=fixed)
    return Drawn(x, w, bias, _out(draw, kind, float(in_scale * scales.mean()), spread))


def _data(draw: DrawFn, rng: np.random.Generator, kind: Kind, shape: Sequence[int]) -> tuple[Arg, float]:
    if kind.data is F32:
        values = rng.uniform(-1, 1, shape).astype(np.float32) * np.float32(10.0 ** draw(st.integers(-3, 3)))
        if draw(st.booleans()):
            values = np.where(rng.random(shape) < 0.3, np.float32(0), values)
        if kind.filter is F32 and values.size and draw(st.integers(0, 4)) == 0:
            values.reshape(-1)[rng.integers(values.size)] = draw(st.sampled_from([np.inf, -np.inf, np.nan]))
        return Arg(values), 1.0
    low, high = RANGES[kind.data]
    values = rng.integers(low, high, shape, endpoint=True).astype(_NUMPY[kind.data])
    if draw(st.booleans()):
        values = np.where(rng.random(shape) < 0.5, rng.choice([low, high], shape), values).astype(
            values.dtype
        )
    scale = float(np.float32(2.0 ** draw(st.floats(-12, 0))))
    return Arg(values, per_tensor(scale, _zero(draw, kind.data))), scale


def _zero(draw: DrawFn, kind: TensorType) -> int:
    return 0 if kind is I16 else draw(st.integers(*RANGES[kind]))


def _filter(
    draw: DrawFn, rng: np.random.Generator, kind: Kind, shape: Sequence[int], axis: int, *, constant: bool
) -> tuple[Arg, np.ndarray]:
    channels = shape[axis]
    if kind.filter is F32:
        return Arg(rng.uniform(-1, 1, shape).astype(np.float32), constant=constant), np.ones(channels)
    low, high = _FILTERS[kind.filter]
    values = rng.integers(low, high, shape, endpoint=True).astype(_NUMPY[kind.filter])
    centre = 2.0 ** draw(st.floats(-12, -2))
    scales = np.float32(centre * rng.uniform(0.5, 2, channels if kind.by_channel else 1))
    zero = draw(st.integers(0, 255)) if kind.filter is U8 else 0
    form = Quantization(tuple(map(float, scales)), (zero,) * len(scales), axis if kind.by_channel else 0)
    arg = Arg(values, form, constant=constant, type=kind.filter)
    return arg, np.broadcast_to(scales, channels)


def _products(in_scale: float, scales: np.ndarray) -> Quantization:
    single = len(set(scales.tolist())) == 1
    found = (np.float32(in_scale) * np.float32(scales[:1] if single else scales)).tolist()
    return Quantization(tuple(found), (0,) * len(found))


def _out(draw: DrawFn, kind: Kind, scale: float, spread: float) -> Out:
    """Draw a result: sums are mostly within its range, or mostly outside."""
    if kind.data is F32:
        return Out()
    result = kind.result or kind.data
    levels = spread / RANGES[result][1] * 2.0 ** draw(st.floats(-2, 4))
    form = per_tensor(scale * max(levels, 2.0**-4), _zero(draw, result))
    return Out(_NUMPY[result], form)


def present(*args: Arg | None) -> list[Arg]:
    """Return the operands that are present: a bias that is left out has no place in the list of inputs."""
    return [arg for arg in args if arg is not None]
