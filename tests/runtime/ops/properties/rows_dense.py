"""FULLY_CONNECTED and BATCH_MATMUL: kinds of operands, ranks, broadcasts, computed weights, activations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from runtime.model.graph import BlockQuantization, Quantization
from runtime.model.schema import BuiltinOperator, TensorType
from tests.runtime.models import Arg, Builder, Out, per_tensor
from tests.runtime.ops.properties import filters as f
from tests.runtime.ops.properties.examples import Example, linear
from tests.runtime.ops.properties.rows import REFERENCE, Row
from tests.runtime.ops.properties.strategies import RANGES, Operands, shapes

Op = BuiltinOperator
DEPTHS = (1, 2, 3, 7, 16, 33, 64, 300, 2000)


def dense(kind: f.Kind, *, late: bool = False) -> Callable[[DrawFn, Operands], Example]:
    def build(draw: DrawFn, o: Operands) -> Example:
        depth, channels = draw(st.sampled_from(DEPTHS)), draw(st.integers(1, 9))
        x = (*draw(shapes(0 if kind.data is f.F32 else 1, 3, 4)), depth)
        d = f.drawn(
            o, kind, x, (channels, depth), 0, depth, constant=not late, always_bias=kind.result is not None
        )
        options: dict[str, Any] = {
            "keep_num_dims": draw(st.booleans()),
            "fused_activation_function": draw(st.sampled_from(f.ACTIVATIONS)),
        }
        if kind.data is f.F32 and kind.filter is not f.F32:
            options["asymmetric_quantize_inputs"] = draw(st.booleans())
        args = f.present(d.data, d.filter, d.bias)
        return linear(Op.FULLY_CONNECTED, args, d.out, options | kind.options, 14, REFERENCE)

    return build


def blockwise(draw: DrawFn, _: Operands) -> Example:
    """int4 weights with a float16 scale for every block. The reference kernel ends its process on them, so
    the other side is XNNPACK: each quantises a row of activations by itself, to one level of the other's."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    block = draw(st.sampled_from([32, 64]))
    blocks, channels, rows = draw(st.integers(1, 4)), draw(st.integers(1, 9)), draw(st.integers(1, 4))
    levels = rng.integers(-7, 7, (channels, blocks * block), endpoint=True).astype(np.int8)
    scales = rng.uniform(0.01, 0.1, (channels, blocks)).astype(np.float16)
    b = Builder()
    x = b.input(np.float32, (rows, levels.shape[1]))
    form = Quantization((), (), blocks=BlockQuantization(b.constant(scales), -1, block))
    weights = b.constant(levels, form, type=TensorType.INT4)
    bias, y = b.constant(rng.uniform(-1, 1, channels).astype(np.float32)), b.tensor(np.float32)
    options = {
        "fused_activation_function": draw(st.sampled_from(f.ACTIVATIONS)),
        "asymmetric_quantize_inputs": True,
    }
    b.operator(Op.FULLY_CONNECTED, [x, weights, bias], [y], options, 13)
    value = rng.uniform(draw(st.sampled_from([-2.0, 0.5])), 3, (rows, levels.shape[1])).astype(np.float32)
    level = (np.maximum(value.max(axis=1), 0) - np.minimum(value.min(axis=1), 0)) / 255
    real = np.abs(levels * np.repeat(scales.astype(np.float64), block, axis=1))

    def compare(ours: np.ndarray, theirs: np.ndarray, _inputs: Sequence[np.ndarray]) -> None:
        assert (np.abs(ours - theirs) <= 1.01 * level[:, None] * real.sum(axis=1) + 1e-4).all()

    return Example(b.write([y]), (value,), compare)


def _factors(draw: DrawFn, most: int = 2) -> tuple[tuple[int, ...], tuple[int, ...], int, dict[str, Any]]:
    """Shapes of two factors whose leading dimensions broadcast, the depth of a sum, and the options."""
    lead = draw(shapes(0, most, 3))
    rows, depth, columns = (
        draw(st.integers(1, 6)),
        draw(st.sampled_from(DEPTHS[:-1])),
        draw(st.integers(1, 6)),
    )
    adj_x, adj_y = draw(st.booleans()), draw(st.booleans())
    x, z = ((depth, rows) if adj_x else (rows, depth)), ((columns, depth) if adj_y else (depth, columns))
    leads = [tuple(1 if draw(st.integers(0, 3)) == 0 else n for n in lead) for _ in range(2)]
    cut = draw(st.integers(0, len(lead)))
    return (*leads[0], *x), (*leads[1][cut:], *z), depth, {"adj_x": adj_x, "adj_y": adj_y}


def matmul_float(draw: DrawFn, o: Operands) -> Example:
    x, z, _, options = _factors(draw)
    left, right = (o.array(*s, finite=True, low=-1, high=1) for s in (x, z))
    args = [Arg(np.clip(left, -2, 2)), Arg(np.clip(right, -2, 2), constant=draw(st.booleans()))]
    return linear(Op.BATCH_MATMUL, args, Out(), options, 4, REFERENCE)


def matmul_levels(draw: DrawFn, o: Operands) -> Example:
    x, z, depth, options = _factors(draw)
    zero = st.just(0) if o.type is TensorType.INT16 else st.integers(*RANGES[o.type])
    scales = [2.0 ** draw(st.floats(-10, 0)) for _ in range(2)]
    narrow = o.type is TensorType.INT16 and draw(st.booleans())
    args = [
        Arg(o.array(*shape), per_tensor(scale, draw(zero)), constant=fixed)
        for shape, scale, fixed in zip((x, z), scales, (False, draw(st.booleans())), strict=True)
    ]
    if narrow:
        args[1] = replace(args[1], value=(args[1].value >> 8).astype(np.int8))
    spread = np.sqrt(depth) * (127 if narrow else RANGES[o.type][1]) * 0.3 * 2.0 ** draw(st.floats(-2, 4))
    out = Out(o.dtype, per_tensor(scales[0] * scales[1] * spread, draw(zero)))
    return linear(Op.BATCH_MATMUL, args, out, options, 4, REFERENCE)


def matmul_hybrid(draw: DrawFn, o: Operands) -> Example:
    """One leading dimension at most: with two, LiteRT takes the row scales of another matrix."""
    x, z, _, options = _factors(draw, 1)
    left = np.clip(o.array(*x, finite=True, low=-3, high=3), -1e3, 1e3)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    right = rng.integers(-127, 127, z, endpoint=True).astype(np.int8)
    args = [Arg(left), Arg(right, per_tensor(2.0 ** draw(st.floats(-10, -2))), constant=True)]
    options["asymmetric_quantize_inputs"] = draw(st.booleans())
    return linear(Op.BATCH_MATMUL, args, Out(), options, 4, REFERENCE)


KINDS = (
    f.FLOAT,
    f.HYBRID,
    f.HYBRID_CHANNELS,
    f.HYBRID_INT4,
    f.INT8,
    f.INT8_CHANNELS,
    f.INT4_CHANNELS,
    f.INT2_CHANNELS,
    f.HYBRID_INT2,
    f.UINT8,
    f.UINT8_TO_INT16,
    f.INT16,
    f.INT16_BIAS32,
    f.INT16_INT4,
    f.INT16_INT2,
    f.INT16_BOTH,
)
LATE = (f.FLOAT, f.INT8, f.UINT8)

ROWS = [
    *(Row(kind.name, Op.FULLY_CONNECTED, (kind.data,), dense(kind)) for kind in KINDS),
    *(Row(f"{k.name}_late", Op.FULLY_CONNECTED, (k.data,), dense(k, late=True)) for k in LATE),
    Row("blockwise", Op.FULLY_CONNECTED, (f.F32,), blockwise, resolver="BUILTIN"),
    Row("float", Op.BATCH_MATMUL, (f.F32,), matmul_float),
    Row("levels", Op.BATCH_MATMUL, (f.I8, f.I16), matmul_levels),
    Row("hybrid", Op.BATCH_MATMUL, (f.F32,), matmul_hybrid),
]
