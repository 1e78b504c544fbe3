"""TOPK_V2: the greatest elements of each row and their indices."""

from runtime.delegates.gpu.graph.element_type import ElementType, ElementTypes
from runtime.delegates.gpu.graph.graph import Node
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.graph.work_groups import suits_groups
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.reduction.arg_extreme import FIRST_OF_ALL, first_of_lines, key_of
from runtime.model.schema import BuiltinOperator as Op

_ORDERED: ElementTypes = (ElementType.F32, ElementType.I32, ElementType.I64)
"""The types whose elements the kernels order, those of work-groups not int64."""


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    return spec.NodeSpec(facts.operator.inputs[:1])


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel; a unit is one row, which work-items of a group share."""
    (source,), (target, places) = node.required, node.outputs
    before, values = context.value(source), context.value(target)
    read, write, beside = (context.layout(v) for v in (source, target, places))
    name = f"top_k_{before.type.value}"
    shared = {
        "IN_STRIDE": read.pixel_stride,
        "IN_CHANNEL_STRIDE": read.channel_stride,
        "VALUE_STRIDE": write.pixel_stride,
        "VALUE_TAIL": context.tail(target),
    }
    instance = spec.function(
        "movement/sequence/top_k.cl",
        f"f32_{name}",
        {"T": before.type.opencl, "IS_FLOAT": before.type is ElementType.F32},
        CHANNELS=before.channels,
        K=values.channels,
        INDEX_STRIDE=beside.pixel_stride,
        INDEX_TAIL=context.tail(places),
        **shared,
    )
    units: int | tuple[int, ...] = before.pixels
    key = key_of(before.type, FIRST_OF_ALL)
    if key is not None and suits_groups(context.device):
        shape = {
            "LENGTH": before.channels,
            "ELEMENTS": before.pixels,
            "IN_STEP": read.channel_stride,
            "OUT_STRIDE": beside.pixel_stride,
            "TAIL": context.tail(places),
            **divisor("INNER", 1),
            **divisor("IN_CHANNELS", before.channels),
            # A line is a pixel of the output; its K results lie side by side from there on.
            **divisor("OUT_CHANNELS", 1),
            **shared,
        }
        # Indices of this operator are int32 (`types`).
        how: dict[str, int | str] = {"KEY(i)": key, "VALUES": 1, "WIDE": 0}
        instance, units = first_of_lines(
            name, context, before, how, shape, is_last=True, count=values.channels
        )
    launch = context.launch(
        node,
        instance,
        (context.pointer(source), target, places),
        units,
        spec.Work(before.extents, before.elements),
    )
    return [spec.Candidate("groups" if instance.work_group else "rows", (launch,))]


FAMILY = spec.Family(
    operators=(Op.TOPK_V2,),
    read=_read,
    lower=lower,
    constants={1: "k"},
    any_layout=True,
    parameters=(1,),
    types={Op.TOPK_V2: spec.Types((_ORDERED,), (_ORDERED, (ElementType.I32,)), alike=True)},
)
