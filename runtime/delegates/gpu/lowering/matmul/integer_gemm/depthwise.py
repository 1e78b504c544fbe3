"""Depthwise convolutions of int8."""

from __future__ import annotations

import numpy as np

from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import Node, round_up
from runtime.delegates.gpu.graph.parameters import parameters
from runtime.delegates.gpu.graph.weights import WeightType
from runtime.delegates.gpu.lowering.matmul.integer_gemm.product import bias_of
from runtime.delegates.gpu.lowering.matmul.integer_gemm.stage import Stage, bounds, stage_rows
from runtime.delegates.gpu.lowering.spec import (
    Array,
    Candidate,
    Context,
    Instance,
    Launch,
    PackedConstant,
    defines,
)


def depthwise(node: Node, context: Context) -> Candidate:
    """One kernel, a unit for each output row."""
    source, weights, bias = (*node.inputs, None)[:3]
    (target,), a = node.outputs, node.attributes
    if source is None or weights is None:
        raise ValueError("a convolution has an input and a filter")
    before, after = context.value(source), context.value(target)
    n, in_h, in_w, in_channels = before.shape
    _, out_h, out_w, channels = after.shape
    _, filter_h, filter_w, _ = context.value(weights).shape
    width, taps = round_up(channels), filter_h * filter_w

    def filters() -> Array:
        return np.pad(context.constant(weights).reshape(taps, channels), ((0, 0), (0, width - channels)))

    def stage() -> Array:
        return stage_rows(Stage.SHIFTS, bias_of(bias, context, channels), a, np.arange(width))

    launch = Launch(
        Instance(
            "matmul/integer_gemm/depthwise.cl",
            "i8_integer_gemm_depthwise",
            defines(MULTIPLIER=channels // in_channels),
            parameters(
                **bounds(a),
                CHANNELS=width,
                IN_H=in_h,
                IN_W=in_w,
                IN_STRIDE=context.layout(source).pixel_stride,
                IN_ZERO_POINT=a["in_zero_point"],
                OUT_H=out_h,
                OUT_W=out_w,
                OUT_STRIDE=context.layout(target).pixel_stride,
                FILTER_H=filter_h,
                FILTER_W=filter_w,
                STRIDE_H=a["stride_h"],
                STRIDE_W=a["stride_w"],
                DILATION_H=a["dilation_h"],
                DILATION_W=a["dilation_w"],
                PAD_TOP=a["pad_top"],
                PAD_LEFT=a["pad_left"],
            ),
        ),
        (
            source,
            PackedConstant(f"weights{target}", taps * width, filters, ElementType.I8, WeightType.I8),
            PackedConstant(f"stage{target}", 4 * width, stage, ElementType.I32),
            target,
        ),
        units=n * out_h,
        label=f"{node.op.name} int8 {filter_h}x{filter_w} {out_h}x{out_w}x{channels}",
        sources=node.sources,
        flops=2 * after.elements * taps,
        bytes=before.elements + after.elements,
    )
    return Candidate("rows", (launch,))
