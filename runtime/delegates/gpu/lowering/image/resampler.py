"""Custom operator Resampler of MediaPipe's models: an image read at positions between its pixels."""

from runtime.delegates.gpu.graph.graph import Custom, Node
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.lowering import spec


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    return spec.NodeSpec(facts.operator.inputs)


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel; a unit is one output pixel."""
    (source, positions), (target,) = node.required, node.outputs
    value = context.value(target)
    _, height, width, channels = value.shape
    launch = context.launch(
        node,
        spec.function(
            "image/resampler.cl",
            "f32_resampler",
            {},
            IN_H=height,
            IN_W=width,
            CHANNELS=channels,
            **context.strides(IN=source, POSITION=positions, OUT=target),
            **divisor("IN_PIXELS", height * width),
        ),
        (context.pointer(source), context.pointer(positions), target),
        value.pixels,
        spec.Work(flops=8 * value.elements),
    )
    return [spec.Candidate("pixels", (launch,))]


FAMILY = spec.Family(operators=(Custom.RESAMPLER,), read=_read, lower=lower)
