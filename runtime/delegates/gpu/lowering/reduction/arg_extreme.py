"""ARG_MAX and ARG_MIN: the first index of the extremum along a constant axis."""

from math import prod

from runtime.delegates.gpu.graph.element_type import INDICES, ElementType
from runtime.delegates.gpu.graph.graph import LANES, Node, ceil_div
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.lowering import spec
from runtime.model.schema import BuiltinOperator as Op


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    axis = int(facts.known(1).reshape(-1)[0])
    return spec.NodeSpec(facts.operator.inputs[:1], {"axis": axis % len(facts.shape(0))})


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel; a unit is 16 elements of the output."""
    (source,), (target,) = node.required, node.outputs
    value, found, axis = context.value(source), context.value(target), node.attributes["axis"]
    read, write = context.layout(source), context.layout(target)
    is_last = axis == len(value.shape) - 1
    instance = spec.function(
        "reduction/arg_extreme.cl",
        f"f32_{node.op.name.lower()}_{value.type.value}",
        {
            "T": value.type.opencl,
            "INDEX": found.type.opencl,
            "IS_FLOAT": value.type is ElementType.F32,
            "LARGEST": node.op == Op.ARG_MAX,
        },
        LENGTH=value.shape[axis],
        ELEMENTS=found.elements,
        IN_STRIDE=read.pixel_stride,
        IN_CHANNEL_STRIDE=read.channel_stride,
        IN_STEP=read.channel_stride if is_last else prod(value.shape[axis + 1 : -1]) * read.pixel_stride,
        OUT_STRIDE=write.pixel_stride,
        TAIL=context.tail(target),
        **divisor("INNER", prod(value.shape[axis + 1 :])),
        **divisor("IN_CHANNELS", value.channels),
        **divisor("OUT_CHANNELS", found.channels),
    )
    launch = context.launch(
        node,
        instance,
        (context.pointer(source), target),
        ceil_div(found.elements, LANES),
        note=value.extents,
        flops=value.elements,
    )
    return [spec.Candidate("elements", (launch,))]


_COMPARED = (ElementType.F32, ElementType.I32, ElementType.BOOL, ElementType.I8, ElementType.U8)
_TYPES = spec.Types((_COMPARED, INDICES), (INDICES,))

FAMILY = spec.Family(
    operators=(Op.ARG_MAX, Op.ARG_MIN),
    read=_read,
    lower=lower,
    constants={1: "the axis"},
    any_layout=True,
    parameters=(1,),
    types={Op.ARG_MAX: _TYPES, Op.ARG_MIN: _TYPES},
)
