"""Custom operator Resampler of MediaPipe's models: an image read at positions between its pixels."""

from runtime.delegates.gpu.graph.graph import Custom, Node
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.lowering.spec import Candidate, Context, Family, NodeSpec, OperatorFacts, function


def _read(facts: OperatorFacts) -> NodeSpec:
    return NodeSpec(facts.operator.inputs)


def lower(node: Node, context: Context) -> list[Candidate]:
    """One kernel; a unit is one output pixel."""
    (source, positions), (target,) = node.required, node.outputs
    value = context.value(target)
    _, height, width, channels = value.shape
    instance = function(
        "image/resampler.cl",
        "f32_resampler",
        {},
        IN_H=height,
        IN_W=width,
        CHANNELS=channels,
        **context.strides(IN=source, POSITION=positions, OUT=target),
        **divisor("IN_PIXELS", height * width),
    )
    launch = context.launch(
        node,
        instance,
        (context.pointer(source), context.pointer(positions), target),
        value.pixels,
        flops=8 * value.elements,
    )
    return [Candidate("pixels", (launch,))]


FAMILY = Family(operators=(Custom.RESAMPLER,), read=_read, lower=lower)
