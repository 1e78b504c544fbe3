"""CONV_2D and DEPTHWISE_CONV_2D: all kinds of operands, paddings, strides, dilations, groups, activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from runtime.model.schema import BuiltinOperator, Padding
from tests.runtime.ops.properties import filters as f
from tests.runtime.ops.properties.examples import Example, linear
from tests.runtime.ops.properties.rows import REFERENCE, Row
from tests.runtime.ops.properties.strategies import Operands

Op = BuiltinOperator
DEPTHS = (1, 2, 3, 4, 5, 8, 17, 64, 200)


def windows(draw: DrawFn) -> tuple[int, int, int, int, dict[str, Any]]:
    """Input height and width, filter height and width, and the options that place it."""
    padding = draw(st.sampled_from([Padding.SAME, Padding.VALID]))
    strides = [draw(st.integers(1, 3)) for _ in range(2)]
    dilations = [draw(st.sampled_from([1, 1, 1, 2, 3])) for _ in range(2)]
    filters = [draw(st.integers(1, 4)) for _ in range(2)]
    reaches = [(k - 1) * d + 1 for k, d in zip(filters, dilations, strict=True)]
    least = reaches if padding is Padding.VALID else [1, 1]
    sides = [draw(st.integers(low, low + 8)) for low in least]
    options = {
        "padding": padding,
        "stride_h": strides[0],
        "stride_w": strides[1],
        "dilation_h_factor": dilations[0],
        "dilation_w_factor": dilations[1],
        "fused_activation_function": draw(st.sampled_from(f.ACTIVATIONS)),
    }
    return (*sides, *filters, options)


def conv(kind: f.Kind, *, groups: tuple[int, ...] = (1,)) -> Callable[[DrawFn, Operands], Example]:
    def build(draw: DrawFn, o: Operands) -> Example:
        height, width, filter_h, filter_w, options = windows(draw)
        group, depth = draw(st.sampled_from(groups)), draw(st.sampled_from(DEPTHS))
        x = (draw(st.integers(1, 2)), height, width, depth * group)
        w = (draw(st.integers(1, 5)) * group, filter_h, filter_w, depth)
        d = f.drawn(o, kind, x, w, 0, filter_h * filter_w * depth, always_bias=True)
        args = f.present(d.data, d.filter, d.bias)
        return linear(Op.CONV_2D, args, d.out, options | kind.options, 8, REFERENCE)

    return build


def depthwise(kind: f.Kind) -> Callable[[DrawFn, Operands], Example]:
    def build(draw: DrawFn, o: Operands) -> Example:
        height, width, filter_h, filter_w, options = windows(draw)
        depth, multiplier = draw(st.sampled_from(DEPTHS[:-1])), draw(st.integers(1, 3))
        x = (draw(st.integers(1, 2)), height, width, depth)
        d = f.drawn(o, kind, x, (1, filter_h, filter_w, depth * multiplier), 3, filter_h * filter_w)
        args = f.present(d.data, d.filter, d.bias)
        more = {"depth_multiplier": multiplier}
        return linear(Op.DEPTHWISE_CONV_2D, args, d.out, options | more, 6, REFERENCE)

    return build


KINDS = (
    f.FLOAT,
    f.HYBRID,
    f.HYBRID_CHANNELS,
    f.INT8,
    f.INT8_CHANNELS,
    f.INT4_CHANNELS,
    f.UINT8,
    f.INT16,
    f.INT16_BIAS32,
    f.INT16_INT4,
)
# LiteRT reads a scale for every channel of a hybrid filter, has no 32-bit bias for int16, and takes packed
# filters with int16 for unpacked ones.
DEPTHWISE = tuple(k for k in KINDS if k not in (f.HYBRID, f.INT16_BIAS32, f.INT16_INT4))
GROUPED = (f.FLOAT, f.INT8_CHANNELS, f.INT16)

ROWS = [
    *(Row(kind.name, Op.CONV_2D, (kind.data,), conv(kind)) for kind in KINDS),
    *(Row(f"{k.name}_grouped", Op.CONV_2D, (k.data,), conv(k, groups=(2, 3))) for k in GROUPED),
    *(Row(kind.name, Op.DEPTHWISE_CONV_2D, (kind.data,), depthwise(kind)) for kind in DEPTHWISE),
]
