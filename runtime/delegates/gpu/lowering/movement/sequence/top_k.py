"""TOPK_V2: the greatest elements of each row and their indices."""

from runtime.delegates.gpu.graph.element_type import ElementType, ElementTypes
from runtime.delegates.gpu.graph.graph import Node
from runtime.delegates.gpu.lowering import spec
from runtime.model.schema import BuiltinOperator as Op

_ORDERED: ElementTypes = (ElementType.F32, ElementType.I32, ElementType.I64)
"""The types whose elements the kernel orders."""


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    return spec.NodeSpec(facts.operator.inputs[:1])


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel; a unit is one row."""
    (source,), (target, places) = node.required, node.outputs
    before, values = context.value(source), context.value(target)
    read, write, beside = (context.layout(v) for v in (source, target, places))
    instance = spec.function(
        "movement/sequence/top_k.cl",
        f"f32_top_k_{before.type.value}",
        {"T": before.type.opencl, "IS_FLOAT": before.type is ElementType.F32},
        CHANNELS=before.channels,
        IN_STRIDE=read.pixel_stride,
        IN_CHANNEL_STRIDE=read.channel_stride,
        K=values.channels,
        VALUE_STRIDE=write.pixel_stride,
        INDEX_STRIDE=beside.pixel_stride,
        VALUE_TAIL=context.tail(target),
        INDEX_TAIL=context.tail(places),
    )
    launch = context.launch(
        node,
        instance,
        (context.pointer(source), target, places),
        before.pixels,
        note=before.extents,
        flops=before.elements,
    )
    return [spec.Candidate("rows", (launch,))]


FAMILY = spec.Family(
    operators=(Op.TOPK_V2,),
    read=_read,
    lower=lower,
    constants={1: "k"},
    any_layout=True,
    parameters=(1,),
    types={Op.TOPK_V2: spec.Types((_ORDERED,), (_ORDERED, (ElementType.I32,)), alike=True)},
)
