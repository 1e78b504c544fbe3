"""TRANSPOSE_CONV, CONV_3D and CONV_3D_TRANSPOSE: kinds of operands, paddings, strides, dilations."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from runtime.model.schema import BuiltinOperator, Padding
from tests.runtime.models import Builder, const
from tests.runtime.ops.properties import filters as f
from tests.runtime.ops.properties.examples import Example, linear
from tests.runtime.ops.properties.rows import REFERENCE, Row
from tests.runtime.ops.properties.strategies import Operands, fixed_or_fed

Op = BuiltinOperator
DEPTHS = (1, 2, 3, 5, 8, 17, 64)
AXES = ("d", "h", "w")


def _reached(draw: DrawFn, padding: Padding, size: int, filter_size: int, stride: int) -> int:
    """Return a result's side of which a convolution with this filter and stride makes `size`."""
    if padding is Padding.SAME:
        return (size - 1) * stride + draw(st.integers(1, stride))
    return (size - 1) * stride + filter_size + draw(st.integers(0, stride - 1))


def transpose_conv(kind: f.Kind) -> Callable[[DrawFn, Operands], Example]:
    def build(draw: DrawFn, o: Operands) -> Example:
        padding = draw(st.sampled_from([Padding.SAME, Padding.VALID]))
        strides, filters, sides = ([draw(st.integers(1, n)) for _ in range(2)] for n in (3, 4, 6))
        depth, channels, n = draw(st.sampled_from(DEPTHS)), draw(st.integers(1, 6)), draw(st.integers(1, 2))
        reached = [_reached(draw, padding, *z) for z in zip(sides, filters, strides, strict=True)]
        w = (channels, *filters, depth)
        d = f.drawn(o, kind, (n, *sides, depth), w, 0, depth * filters[0] * filters[1])
        options: dict[str, Any] = {
            "padding": padding,
            "stride_h": strides[0],
            "stride_w": strides[1],
            "fused_activation_function": draw(st.sampled_from(f.ACTIVATIONS)),
        }
        shape = fixed_or_fed(draw, [n, *reached, channels], np.int32)
        args = f.present(shape, d.filter, d.data, d.bias)
        return linear(Op.TRANSPOSE_CONV, args, d.out, options | kind.options, 5, REFERENCE)

    return build


def _volume(draw: DrawFn, *, dilated: bool) -> tuple[list[int], list[int], list[int], dict[str, Any]]:
    """Sides, filter sizes and strides of a volume, and the options that state them."""
    padding = draw(st.sampled_from([Padding.SAME, Padding.VALID]))
    strides, filters = ([draw(st.integers(1, n)) for _ in range(3)] for n in (2, 3))
    dilations = [draw(st.integers(1, 2)) if dilated else 1 for _ in range(3)]
    reaches = [(k - 1) * d + 1 for k, d in zip(filters, dilations, strict=True)]
    sides = [draw(st.integers(low if padding is Padding.VALID else 1, low + 3)) for low in reaches]
    options: dict[str, Any] = {
        "padding": padding,
        "fused_activation_function": draw(st.sampled_from(f.ACTIVATIONS)),
    }
    for axis, stride, dilation in zip(AXES, strides, dilations, strict=True):
        options |= {f"stride_{axis}": stride, f"dilation_{axis}_factor": dilation}
    return sides, filters, strides, options


def conv_3d(draw: DrawFn, o: Operands) -> Example:
    sides, filters, _, options = _volume(draw, dilated=True)
    depth, channels = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    w = (*filters, depth, channels)
    d = f.drawn(o, f.FLOAT, (draw(st.integers(1, 2)), *sides, depth), w, 4, depth * 8)
    args = f.present(d.data, d.filter, d.bias)
    return linear(Op.CONV_3D, args, d.out, options, 1, REFERENCE)


def conv_3d_transpose(draw: DrawFn, o: Operands) -> Example:
    sides, filters, strides, options = _volume(draw, dilated=False)
    padding = options["padding"]
    n, depth, channels = draw(st.integers(1, 2)), draw(st.integers(1, 5)), draw(st.integers(1, 5))
    d = f.drawn(o, f.FLOAT, (n, *sides, depth), (*filters, channels, depth), 3, depth * 8)
    reached = [_reached(draw, padding, *z) for z in zip(sides, filters, strides, strict=True)]
    args = f.present(const([n, *reached, channels], np.int32), d.filter, d.data, d.bias)
    return linear(Op.CONV_3D_TRANSPOSE, args, d.out, options, 1, REFERENCE)


def with_bias(draw: DrawFn, _: Operands) -> Example:
    """Build the custom operator of MediaPipe's models, which LiteRT has through XNNPACK alone: whole numbers.

    Under SAME it takes no filter shorter than its stride.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    is_same = draw(st.booleans())
    n, depth, channels = draw(st.integers(1, 2)), draw(st.sampled_from(DEPTHS)), draw(st.integers(1, 6))
    sides, strides = ([draw(st.integers(1, m)) for _ in range(2)] for m in (6, 3))
    filters = [draw(st.integers(stride if is_same else 1, 4)) for stride in strides]
    reached = [
        side * stride if is_same else (side - 1) * stride + taps
        for side, stride, taps in zip(sides, strides, filters, strict=True)
    ]
    data, weights, bias = (
        rng.integers(-9, 10, shape).astype(np.float32)
        for shape in ((n, *sides, depth), (channels, *filters, depth), (channels,))
    )
    b = Builder()
    y = b.tensor(np.float32, (n, *reached, channels))
    b.operator(
        Op.CUSTOM,
        [b.input(np.float32, data.shape), b.constant(weights), b.constant(bias)],
        [y],
        custom_code="Convolution2DTransposeBias",
        custom_options=struct.pack("<5i", 1 if is_same else 2, strides[1], strides[0], 0, 0),
    )
    return Example(b.write([y]), (data,))


KINDS = (f.FLOAT, f.HYBRID, f.HYBRID_CHANNELS, f.INT8, f.INT8_CHANNELS, f.UINT8, f.INT16, f.INT16_BIAS32)

ROWS = [
    *(Row(kind.name, Op.TRANSPOSE_CONV, (kind.data,), transpose_conv(kind)) for kind in KINDS),
    Row("volume", Op.CONV_3D, (f.F32,), conv_3d),
    Row("Convolution2DTransposeBias", Op.CUSTOM, (f.F32,), with_bias, resolver="AUTO"),
    Row("volume", Op.CONV_3D_TRANSPOSE, (f.F32,), conv_3d_transpose),
]
