"""Between types: QUANTIZE, DEQUANTIZE, CAST, FAKE_QUANT."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from runtime.model.graph import Quantization
from runtime.model.schema import BuiltinOperator, TensorType
from tests.runtime.models import Arg, Out, per_channel, per_tensor
from tests.runtime.ops.every_type import DTYPES
from tests.runtime.ops.properties.rows import Built, Row, within
from tests.runtime.ops.properties.strategies import RANGES, Operands, shapes

Op = BuiltinOperator
T = TensorType
LEVELS = (T.INT8, T.UINT8, T.INT16)
NUMBERS = (
    T.FLOAT32,
    T.FLOAT16,
    T.FLOAT64,
    T.INT8,
    T.UINT8,
    T.INT16,
    T.UINT16,
    T.INT32,
    T.UINT32,
    T.INT64,
    T.BOOL,
    T.COMPLEX64,
)


def quantization_of(draw: DrawFn, kind: TensorType) -> Quantization:
    low, high = (0, 0) if kind in (T.INT16, T.INT32) else RANGES[kind]
    return per_tensor(2.0 ** draw(st.floats(-8, 0)), draw(st.integers(low, high)))


def quantized_to(target: TensorType) -> Callable[[DrawFn, Operands], Built]:
    def build(draw: DrawFn, o: Operands) -> Built:
        q = quantization_of(draw, o.type) if o.type in (T.INT32, *LEVELS) else None
        x = o.arg(*draw(shapes(most=5)), quantization=q, finite=True)
        return [x], [Out(DTYPES[target], quantization_of(draw, target), type=target)], {}

    return build


def quantized_by_channel(target: TensorType) -> Callable[[DrawFn, Operands], Built]:
    def build(draw: DrawFn, o: Operands) -> Built:
        shape = draw(shapes(least=1))
        axis = draw(st.integers(0, len(shape) - 1))
        scales = [2.0 ** draw(st.floats(-8, 0)) for _ in range(shape[axis])]
        out = Out(DTYPES[target], per_channel(scales, axis), type=target, shape=shape)
        return [o.arg(*shape, finite=True)], [out], {}

    return build


def dequantized(draw: DrawFn, o: Operands) -> Built:
    return [o.arg(*draw(shapes(most=5)), quantization=o.levels())], [Out()], {}


def dequantized_by_channel(draw: DrawFn, o: Operands) -> Built:
    shape = draw(shapes(least=1))
    axis = draw(st.integers(0, len(shape) - 1))
    q = per_channel([2.0 ** draw(st.floats(-8, 0)) for _ in range(shape[axis])], axis)
    return [o.arg(*shape, quantization=q)], [Out()], {}


def cast_to(target: TensorType) -> Callable[[DrawFn, Operands], Built]:
    def build(draw: DrawFn, o: Operands) -> Built:
        x = o.arg(*draw(shapes(most=5)), low=-1000.0, high=1000.0)
        return [x], [Out(DTYPES[target], type=target)], {"in_data_type": o.type, "out_data_type": target}

    return build


def faked(draw: DrawFn, o: Operands) -> Built:
    low, high = sorted(draw(st.lists(st.floats(-20, 20, width=32), min_size=2, max_size=2, unique=True)))
    low, high = min(low, 0.0), max(high, 0.0)
    options = {
        "min": low,
        "max": high,
        "num_bits": draw(st.integers(2, 16)),
        "narrow_range": False,
    }
    return [Arg(o.array(*draw(shapes()), finite=True, low=-30.0, high=30.0))], [Out()], options


ROWS = [
    Row("to_int8", Op.QUANTIZE, (T.FLOAT32, *LEVELS, T.INT32), quantized_to(T.INT8)),
    Row("to_uint8", Op.QUANTIZE, (T.FLOAT32, T.INT8, T.UINT8), quantized_to(T.UINT8)),
    Row("to_int16", Op.QUANTIZE, (T.FLOAT32, *LEVELS, T.INT32), quantized_to(T.INT16)),
    Row("to_int32", Op.QUANTIZE, (T.INT16,), quantized_to(T.INT32)),
    *(
        Row(f"to_{t.name.lower()}_by_channel", Op.QUANTIZE, (T.FLOAT32,), quantized_by_channel(t))
        for t in LEVELS
    ),
    Row("to_float32", Op.DEQUANTIZE, (*LEVELS, T.FLOAT16), dequantized),
    Row("to_float32_by_channel", Op.DEQUANTIZE, (T.INT8, T.UINT8), dequantized_by_channel),
    *(Row(f"to_{t.name.lower()}", Op.CAST, NUMBERS, cast_to(t)) for t in NUMBERS),
    Row("ranges", Op.FAKE_QUANT, (T.FLOAT32,), faked, within()),
]
