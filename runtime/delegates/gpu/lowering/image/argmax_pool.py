"""Custom operators MaxPoolingWithArgmax2D and MaxUnpooling2D of MediaPipe's models.

The options are the bytes of a C struct of int32: padding, strides and filter (w, h), activation.
"""

import struct

import numpy as np

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.graph import LANES, Custom, Node, ceil_div
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.graph.work_groups import image_places
from runtime.delegates.gpu.lowering import spec
from runtime.model.schema import ActivationFunctionType as Activation

_OPTIONS = struct.Struct("<6i")
_LARGEST = float(np.finfo(np.float32).max)
_BOUNDS = {
    Activation.NONE.value: (-_LARGEST, _LARGEST),
    Activation.RELU.value: (0.0, _LARGEST),
    Activation.RELU_N1_TO_1.value: (-1.0, 1.0),
    Activation.RELU6.value: (0.0, 6.0),
}
"""Activation → the bounds between which it clamps; LiteRT's ranges end at the finite numbers."""


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    _, stride_w, stride_h, filter_w, filter_h, activation = _options(facts)
    if facts.operator.name == Custom.MAX_POOLING_WITH_ARGMAX_2D.value:
        return None if activation in _BOUNDS else Unsupported(f"the activation {activation} has no kernel")
    if stride_h < filter_h or stride_w < filter_w:
        return Unsupported(
            f"windows of {filter_h}x{filter_w}, {stride_h}x{stride_w} apart, overlap: they have no kernel"
        )
    return None


def _options(facts: spec.OperatorFacts) -> tuple[int, ...]:
    return _OPTIONS.unpack_from(facts.operator.custom_options)


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    """Half of what the windows reach beyond the image lies in front of it (`kernels/padding.h`)."""
    _, stride_w, stride_h, filter_w, filter_h, activation = _options(facts)
    # The padding of the options is not needed: the shapes show its effect.
    attributes: dict[str, int] = {"activation": activation}
    windows, image = facts.output_shape(), facts.shape(0)
    if facts.operator.name == Custom.MAX_UNPOOLING_2D.value:
        windows, image = image, windows
    axes = ((1, "h", stride_h, filter_h, "top"), (2, "w", stride_w, filter_w, "left"))
    for axis, letter, stride, extent, side in axes:
        reach = (windows[axis] - 1) * stride + extent
        attributes |= {f"stride_{letter}": stride, f"filter_{letter}": extent}
        attributes[f"pad_{side}"] = max(0, reach - image[axis]) // 2
    return spec.NodeSpec(facts.operator.inputs, attributes)


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel; a unit is 16 channels of an output pixel."""
    return [_pool(node, context) if node.op is Custom.MAX_POOLING_WITH_ARGMAX_2D else _unpool(node, context)]


def _pool(node: Node, context: spec.Context) -> spec.Candidate:
    (source,), (target, places), a = node.required, node.outputs, node.attributes
    low, high = _BOUNDS[a["activation"]]
    instance = spec.function(
        "image/argmax_pool.cl",
        "f32_argmax_pool",
        {},
        **_window(node, context, source, target),
        **{f"STRIDE_{letter}": a[f"stride_{letter.lower()}"] for letter in "HW"},
        LOW=low,
        HIGH=high,
        **context.strides(PLACE=places),
    )
    return _candidate(node, context, instance, (source, target, places))


def _unpool(node: Node, context: spec.Context) -> spec.Candidate:
    (source, indices), (target,), a = node.required, node.outputs, node.attributes
    instance = spec.function(
        "image/argmax_pool_inverse.cl",
        "f32_argmax_pool_inverse",
        {},
        **_window(node, context, source, target),
        **divisor("STRIDE_H", a["stride_h"]),
        **divisor("STRIDE_W", a["stride_w"]),
        **context.strides(INDEX=indices),
    )
    pointers = (context.pointer(source), context.pointer(indices), target)
    return _candidate(node, context, instance, pointers)


def _window(node: Node, context: spec.Context, source: int, target: int) -> dict[str, int]:
    a, before, after = node.attributes, context.value(source), context.value(target)
    return {
        "IN_H": before.shape[1],
        "IN_W": before.shape[2],
        "FILTER_H": a["filter_h"],
        "FILTER_W": a["filter_w"],
        "PAD_TOP": a["pad_top"],
        "PAD_LEFT": a["pad_left"],
        "CHANNELS": after.channels,
        **context.strides(IN=source, OUT=target),
        **divisor("UNIT_BLOCKS", ceil_div(after.channels, LANES)),
        **image_places(after),
    }


def _candidate(
    node: Node, context: spec.Context, instance: spec.Instance, pointers: tuple[spec.Argument, ...]
) -> spec.Candidate:
    after = context.value(node.outputs[0])
    launch = context.launch(
        node,
        instance,
        pointers,
        after.pixels * ceil_div(after.channels, LANES),
        spec.Work(flops=after.elements),
    )
    return spec.Candidate("vectors", (launch,))


FAMILY = spec.Family(
    operators=(Custom.MAX_POOLING_WITH_ARGMAX_2D, Custom.MAX_UNPOOLING_2D),
    read=_read,
    lower=lower,
    supports=_supports,
)
