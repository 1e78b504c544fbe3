"""ONE_HOT: a new axis that holds one value where it equals an index, and another value elsewhere."""

from math import prod

from runtime.delegates.gpu.graph.element_type import INDICES, MOVABLE
from runtime.delegates.gpu.graph.graph import Node
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.lowering import spec
from runtime.model.schema import BuiltinOperator as Op


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    indices, axis = facts.operator.inputs[0], int(facts.options["axis"])
    shape = facts.shape(0)
    inner = 1 if axis == -1 else prod(shape[axis:])
    depth = facts.output_shape()[axis]
    return spec.NodeSpec((indices, *facts.operator.inputs[2:4]), {"inner": inner, "depth": depth})


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel; a unit is one output pixel."""
    (source, on, off), (target,) = node.required, node.outputs
    indices, value = context.value(source), context.value(target)
    read, write = context.layout(source), context.layout(target)
    launch = context.launch(
        node,
        spec.function(
            "movement/fill_one_hot.cl",
            "f32_one_hot",
            {"T": value.type.word, "INDEX": indices.type.opencl},
            CHANNELS=value.channels,
            OUT_STRIDE=write.pixel_stride,
            TAIL=context.tail(target),
            INDEX_STRIDE=read.pixel_stride,
            INDEX_CHANNEL_STRIDE=read.channel_stride,
            **divisor("DEPTH_INNER", node.attributes["depth"] * node.attributes["inner"]),
            **divisor("INNER", node.attributes["inner"]),
            **divisor("INDEX_CHANNELS", indices.channels),
        ),
        (context.pointer(source), context.pointer(on), context.pointer(off), target),
        value.pixels,
    )
    return [spec.Candidate("positions", (launch,))]


FAMILY = spec.Family(
    operators=(Op.ONE_HOT,),
    read=_read,
    lower=lower,
    constants={1: "the depth"},
    any_layout=True,
    parameters=(1,),
    types={Op.ONE_HOT: spec.Types((INDICES, INDICES, MOVABLE), (MOVABLE,), alike=True)},
)
