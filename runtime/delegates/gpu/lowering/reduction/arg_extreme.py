"""ARG_MAX and ARG_MIN: the first index of the extremum along a constant axis."""

from collections.abc import Mapping
from math import prod

from runtime.delegates.gpu.graph.element_type import INDICES, ElementType
from runtime.delegates.gpu.graph.graph import LANES, Node, Value, ceil_div
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.graph.work_groups import LocalArray, WorkGroup, shared_rows, suits_groups
from runtime.delegates.gpu.lowering import spec
from runtime.model.schema import BuiltinOperator as Op

_SIDE = 16
"""Lines of a group, and work-items of each, where neighbouring lines lie side by side: loads of 64 bytes.
More lines leave fewer work-items for each, fewer make loads that do not fill a line of memory."""

_KEYS: Mapping[ElementType, str] = {
    ElementType.I32: "(LOAD_WORD(in, i) ^ 0x80000000u)",
    ElementType.BOOL: "LOAD_BYTE(in, i)",
    ElementType.I8: "(LOAD_BYTE(in, i) ^ 128u)",
    ElementType.U8: "LOAD_BYTE(in, i)",
}
"""Element → a number without a sign for element i, in the same order; floats need a place for NaN."""

LEAST_OF_ALL, FIRST_OF_ALL, GREATEST_NUMBER = "0x007fffffu", "0xffffffffu", "0xff800000u"
"""Places of a NaN among floats: that of minus infinity, behind every number, that of infinity."""


def key_of(element: ElementType, of_nan: str) -> str | None:
    """Return the key by which work-groups find the greatest element; None for a type that they lack."""
    if element is ElementType.F32:
        return f"order_of_float(LOAD_WORD(in, i), {of_nan})"
    return _KEYS.get(element)


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    axis = int(facts.known(1).reshape(-1)[0])
    return spec.NodeSpec(facts.operator.inputs[:1], {"axis": axis % len(facts.shape(0))})


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel; a unit is 16 elements of the output, which work-items of a group share."""
    (source,), (target,) = node.required, node.outputs
    value, found, axis = context.value(source), context.value(target), node.attributes["axis"]
    read, write = context.layout(source), context.layout(target)
    is_last, is_largest = axis == len(value.shape) - 1, node.op == Op.ARG_MAX
    shape = {
        "LENGTH": value.shape[axis],
        "ELEMENTS": found.elements,
        "IN_STRIDE": read.pixel_stride,
        "IN_CHANNEL_STRIDE": read.channel_stride,
        "IN_STEP": read.channel_stride if is_last else prod(value.shape[axis + 1 : -1]) * read.pixel_stride,
        "OUT_STRIDE": write.pixel_stride,
        "TAIL": context.tail(target),
        **divisor("INNER", prod(value.shape[axis + 1 :])),
        **divisor("IN_CHANNELS", value.channels),
        **divisor("OUT_CHANNELS", found.channels),
    }
    name = f"{node.op.name.lower()}_{value.type.value}"
    key = key_of(value.type, LEAST_OF_ALL if is_largest else GREATEST_NUMBER)
    units: int | tuple[int, ...] = ceil_div(found.elements, LANES)
    instance = spec.function(
        "reduction/arg_extreme.cl",
        f"f32_{name}",
        {
            "T": value.type.opencl,
            "INDEX": found.type.opencl,
            "IS_FLOAT": value.type is ElementType.F32,
            "LARGEST": is_largest,
        },
        **shape,
    )
    if key is not None and suits_groups(context.device):
        how: dict[str, int | str] = {
            # The least key is the greatest of the complements.
            "KEY(i)": key if is_largest else f"~{key}",
            "VALUES": 0,
            "WIDE": found.type is ElementType.I64,
        }
        instance, units = first_of_lines(name, context, value, how, shape, is_last=is_last)
    launch = context.launch(
        node, instance, (context.pointer(source), target), units, spec.Work(value.extents, value.elements)
    )
    return [spec.Candidate("groups" if instance.work_group else "elements", (launch,))]


def first_of_lines(
    name: str,
    context: spec.Context,
    value: Value,
    how: Mapping[str, int | str],
    shape: Mapping[str, int],
    *,
    is_last: bool,
    count: int = 1,
) -> tuple[spec.Instance, tuple[int, int]]:
    """Return the kernel that finds the first `count` elements of each line of `value`, and its groups.

    `how` has the defines of `arg_extreme_groups.cl` but those of the group, `shape` its parameters; lines of
    the last dimension lie along the channels.
    """
    lanes, lines = shared_rows(value, context.device) if is_last else (_SIDE, _SIDE)
    arrays = tuple(LocalArray(*one, lanes * lines) for one in (("keys", "uint"), ("places", "int")))
    instance = spec.function(
        "reduction/arg_extreme_groups.cl",
        spec.instance_name(f"groups_{name}", f"r{lanes}"),
        spec.joined(how, {"LANES": lanes, "LINES": lines, "ALONG": is_last}),
        # Work-items that are neighbours in dimension 0 load neighbouring elements: along a line of channels,
        # or across lines that lie side by side.
        WorkGroup((lanes, lines) if is_last else (lines, lanes), arrays),
        K=count,
        **shape,
    )
    return instance, (ceil_div(shape["ELEMENTS"], lines), 1)


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
