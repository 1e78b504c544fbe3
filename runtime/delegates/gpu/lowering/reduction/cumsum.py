"""CUMSUM: running sums along any constant axis, with channels in the vectors or along the channels."""

from math import prod

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import LANES, Node, ceil_div, round_up
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.graph.work_groups import QUAD, strided, suits_groups
from runtime.delegates.gpu.lowering import spec
from runtime.model.schema import BuiltinOperator as Op

_SUMMED = {ElementType.F32: "float", ElementType.I32: "uint", ElementType.I64: "ulong"}
"""Element → the type that sums it: integers without a sign, whose sums wrap around as LiteRT's do."""

# No int64: the portable subset in which these kernels are written has no numbers of 64 bits.
_GROUPED = {ElementType.F32: "LOAD(in, i)", ElementType.I32: "LOAD_WORD(in, i)"}
"""Element → its load in the kernel of work-groups."""


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    axis, rank = facts.constant(1), len(facts.shape(0))
    if axis is None or axis.size != 1:
        return Unsupported("the axis must be one constant")
    if not -rank <= (found := int(axis.reshape(-1)[0])) < rank:
        return Unsupported(f"axis {found} is outside rank {rank}")
    return None


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    place = int(facts.known(1).reshape(-1)[0]) % len(facts.shape(0))
    flags = {name: bool(facts.options.get(name, False)) for name in ("exclusive", "reverse")}
    return spec.NodeSpec(facts.operator.inputs[:1], {"axis": place, **flags})


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel: a unit is a run of 16 channels along the axis, or one row of channels."""
    (source,), (target,) = node.required, node.outputs
    value, axis = context.value(target), node.attributes["axis"]
    if suits_groups(context.device) and value.type in _GROUPED:
        return [spec.Candidate("groups", (_grouped(node, context),))]
    flags = {
        "T": _SUMMED[value.type],
        "IS_FLOAT": value.type is ElementType.F32,
        "EXCLUSIVE": node.attributes["exclusive"],
        "REVERSE": node.attributes["reverse"],
    }
    shared = {"CHANNELS": value.channels, **context.strides(IN=source, OUT=target)}
    if axis == len(value.shape) - 1:
        instance = spec.function("reduction/cumsum_rows.cl", "f32_cumsum_rows", flags, **shared)
        units = value.pixels
    else:
        inner = prod(value.shape[axis + 1 : -1])
        shape = {"LENGTH": value.shape[axis], "INNER": inner, **shared}
        instance = spec.function("reduction/cumsum.cl", "f32_cumsum", flags, **shape)
        units = prod(value.shape[:axis]) * inner * ceil_div(value.channels, LANES)
    launch = context.launch(node, instance, (source, target), units, spec.Work(flops=value.elements))
    return [spec.Candidate("runs", (launch,))]


def _grouped(node: Node, context: spec.Context) -> spec.Launch:
    """Return the launch of the kernel of work-groups, whose work-items have a run each."""
    (source,), (target,) = node.required, node.outputs
    value, axis = context.value(target), node.attributes["axis"]
    rows, vectors = axis == len(value.shape) - 1, round_up(value.channels) // QUAD
    inner = prod(value.shape[axis + 1 : -1])
    runs = value.pixels if rows else prod(value.shape[:axis]) * inner * vectors
    group, groups = strided(runs)
    return context.launch(
        node,
        spec.function(
            "reduction/cumsum_groups.cl",
            f"f32_groups_cumsum_{'rows' if rows else 'lines'}",
            {
                "T": _SUMMED[value.type],
                "IS_FLOAT": value.type is ElementType.F32,
                "VALUE(i)": _GROUPED[value.type],
                "ROWS": rows,
                "EXCLUSIVE": node.attributes["exclusive"],
                "PLACE(k, n)": "((n) - 1 - (k))" if node.attributes["reverse"] else "(k)",
            },
            group,
            RUNS=runs,
            CHANNELS=value.channels,
            **context.strides(IN=source, OUT=target),
            LENGTH=value.shape[axis],
            **divisor("INNER", inner),
            **divisor("VECTORS", vectors),
        ),
        (source, target),
        groups,
        spec.Work(flops=value.elements),
    )


FAMILY = spec.Family(
    operators=(Op.CUMSUM,),
    read=_read,
    lower=lower,
    supports=_supports,
    epilogue=True,
    parameters=(1,),
    types={Op.CUMSUM: spec.Types((tuple(_SUMMED), (ElementType.F32,)), (tuple(_SUMMED),), alike=True)},
)
