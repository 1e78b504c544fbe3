"""Custom operator Resampler of MediaPipe's models: an image read at positions between its pixels."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.delegates.gpu.graph.graph import Custom, Node
from runtime.delegates.gpu.graph.parameters import divisor, parameters
from runtime.delegates.gpu.lowering.spec import (
    Candidate,
    Context,
    Family,
    Instance,
    Launch,
    NodeSpec,
    OperatorFacts,
    defines,
    instance_name,
)


def _read(facts: OperatorFacts) -> NodeSpec:
    return NodeSpec(facts.operator.inputs)


def lower(node: Node, context: Context) -> Sequence[Candidate]:
    """One kernel; a unit is one output pixel."""
    (source, positions), (target,) = node.inputs, node.outputs
    if source is None or positions is None:
        raise ValueError("Resampler has two inputs")
    value = context.value(target)
    _, height, width, channels = value.shape
    launch = Launch(
        Instance(
            "image/resampler.cl",
            instance_name("resampler"),
            defines(),
            parameters(
                IN_H=height,
                IN_W=width,
                CHANNELS=channels,
                IN_STRIDE=context.layout(source).pixel_stride,
                POSITION_STRIDE=context.layout(positions).pixel_stride,
                OUT_STRIDE=context.layout(target).pixel_stride,
                **divisor("IN_PIXELS", height * width),
            ),
        ),
        (context.pointer(source), context.pointer(positions), target),
        units=value.pixels,
        label=f"Resampler {'x'.join(map(str, value.shape))}",
        sources=node.sources,
        flops=8 * value.elements,
        bytes=8 * value.elements,
    )
    return [Candidate("pixels", (launch,))]


FAMILY = Family(operators=(Custom.RESAMPLER,), read=_read, lower=lower)
