"""MEAN, SUM and the other reductions, over any dimensions: with channels in the vectors, or across them.

The last dimension stands by itself, because the rows of channels are padded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import LANES, Kind, Node, ceil_div, round_up
from runtime.delegates.gpu.graph.parameters import Digit, divisor, offset
from runtime.delegates.gpu.graph.simulation import levels_of
from runtime.delegates.gpu.graph.work_groups import (
    FEWEST_ITEMS,
    GROUP_ITEMS,
    QUAD,
    LocalArray,
    WorkGroup,
    row_group,
    suits_groups,
)
from runtime.delegates.gpu.lowering import spec
from runtime.model.schema import BuiltinOperator as Op
from runtime.ops.support.quantization import quantize_multiplier

F32, I32, I64, BOOL = ElementType.F32, ElementType.I32, ElementType.I64, ElementType.BOOL
I8 = ElementType.I8

_KINDS: Mapping[Kind, str] = {
    Op.MEAN: "mean",
    Op.SUM: "sum",
    Op.REDUCE_MAX: "max",
    Op.REDUCE_MIN: "min",
    Op.REDUCE_PROD: "prod",
    Op.REDUCE_ANY: "any",
    Op.REDUCE_ALL: "all",
}

_OF_BOOLS = {"sum": "any", "max": "any", "prod": "all", "min": "all"}
"""What a reduction of flags is, which count as 0 and 1."""

_COMBINED = {
    "mean": "((a) + (b))",
    "sum": "((a) + (b))",
    "max": "((b) > (a) ? (b) : (a))",
    "min": "((b) < (a) ? (b) : (a))",
    "prod": "((a) * (b))",
    "any": "((a) | (b))",
    "all": "((a) & (b))",
}
"""Reduction → how two partial results become one; of a NaN beside a number, extrema take the number."""

_STARTS = {"mean": "0", "sum": "0", "prod": "1", "any": "0", "all": "1"}
_BOUNDS = {F32: ("-FLT_MAX", "FLT_MAX"), I32: ("INT_MIN", "INT_MAX"), I64: ("LONG_MIN", "LONG_MAX")}
"""Element → what a maximum and a minimum start with; LiteRT's float ones with the finite numbers."""

_LANES = (64, 16, 4)
"""Work-items that share an output of four channels, by which there are at least as many pixels: with more
lanes there are more work-items, with fewer, less is left to join."""

_RANGE = 4
"""Fewest pixels of each work-item in a range of a split reduction: with fewer, joining the ranges costs as
much as they save."""

_LEVEL = (
    "clamp(multiplied16((x) - OFFSET, (int16)MULTIPLIER, (int16)LEFT, (int16)RIGHT) + ZERO_POINT, -128, 127)"
)
"""The mean of int8 as LiteRT's kernel rounds it: the number of elements is a part of the multiplier."""

_UNSIGNED = {I32: "uint", I64: "ulong"}


def _kind(node: Node, element: ElementType) -> str:
    kind = _KINDS[node.op]
    return _OF_BOOLS.get(kind, kind) if element is BOOL else kind


def _arithmetic(node: Node, element: ElementType) -> dict[str, str]:
    """Return the defines of a reduction: types of elements and of partial results, and their arithmetic.

    Sums and products of integers wrap around, which numbers without a sign do. A mean of integers is a sum of
    64 bits, divided towards zero.
    """
    kind = _kind(node, element)
    if element is I8:
        return {"T": "char", "P": "int", "START": "0", "COMBINE(a, b)": _COMBINED[kind], "RESULT(x)": _LEVEL}
    memory = _UNSIGNED.get(element, element.opencl) if kind in ("sum", "prod") else element.opencl
    start = _BOUNDS[element][kind == "min"] if kind in ("max", "min") else _STARTS[kind]
    is_integer_mean = kind == "mean" and element is not F32
    scaled = "((x) / DIVISOR)" if is_integer_mean else "((x) * SCALE)" if kind == "mean" else "(x)"
    partial = "long" if is_integer_mean else memory
    combined = {"COMBINE(a, b)": _COMBINED[kind], "RESULT(x)": scaled}
    return {"T": memory, "P": partial, "START": start, **combined}


def _factor(node: Node, element: ElementType, count: int) -> dict[str, int | float]:
    """Return the parameter of the stored results: for a mean, one by the number of elements."""
    if node.op != Op.MEAN:
        return {}
    if element is I8:
        return {name.upper(): node.attributes[name] for name in _OF_LEVELS}
    return {"SCALE": 1.0 / count} if element is F32 else {"DIVISOR": count}


def _axes(facts: spec.OperatorFacts) -> tuple[int, ...] | None:
    """Return the reduced axes from the front; None if they are not constant."""
    data = facts.constant(1)
    if data is None:
        return None
    rank = len(facts.shape(0))
    return tuple(sorted({int(axis) % rank for axis in data.reshape(-1)})) if rank else ()


_OF_LEVELS = ("offset", "multiplier", "left", "right", "zero_point")
"""Attributes of a mean of int8."""


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    axes = _axes(facts)
    if axes is None:
        return Unsupported("the axes must be constant")
    if facts.types.get(facts.operator.inputs[0]) is I8:
        if not axes:
            return Unsupported("a mean of int8 over no axis has no kernel")
        tensors = facts.graph.subgraph.tensors
        if any(levels_of(tensors[i]) is None for i in (facts.operator.inputs[0], facts.operator.outputs[0])):
            return Unsupported("a mean of int8 needs scales")
    return None


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    axes = _axes(facts) or ()
    is_of_levels = facts.types.get(facts.operator.inputs[0]) is I8
    return spec.NodeSpec(
        facts.operator.inputs[:1], {"axes": axes, **(_mean_of_levels(facts, axes) if is_of_levels else {})}
    )


def _mean_of_levels(facts: spec.OperatorFacts, axes: tuple[int, ...]) -> dict[str, int]:
    """Return a mean's parameters; its division is in the multiplier, shifted left first, as in LiteRT."""
    tensors = facts.graph.subgraph.tensors
    given, made = (levels_of(tensors[i]) for i in (facts.operator.inputs[0], facts.operator.outputs[0]))
    if given is None or made is None:
        raise ValueError("a mean of levels was accepted without scales")
    count = prod(facts.shape(0)[axis] for axis in axes)
    multiplier, shift = quantize_multiplier(given.scale / made.scale)
    # The same bounds as in LiteRT's `reduce.cc`.
    fold = min(count.bit_length() - 1, 32, 31 + shift)
    multiplier, shift = (multiplier << fold) // count, shift - fold
    return {
        "offset": given.zero_point * count,
        "multiplier": multiplier,
        "left": max(shift, 0),
        "right": max(-shift, 0),
        "zero_point": made.zero_point,
    }


def _digits(node: Node, context: spec.Context, source: int, *, reduced: bool) -> list[Digit]:
    """Return the leading dimensions of the input that are reduced, or those that are kept."""
    shape, step = context.value(source).shape, context.layout(source).pixel_stride
    found: list[Digit] = []
    for axis in reversed(range(len(shape) - 1)):
        if (axis in node.attributes["axes"]) == reduced:
            found.insert(0, Digit(shape[axis], step))
        step *= shape[axis]
    return found


def _views(node: Node, context: spec.Context, source: int) -> tuple[int, dict[str, str], dict[str, int]]:
    """Return the number of pixels that are reduced to one, and their positions as defines with parameters."""
    reduced = _digits(node, context, source, reduced=True)
    kept = offset("KEPT", _digits(node, context, source, reduced=False), "(p)")
    joined = offset("JOINED", reduced, "(r)")
    expressions = {"KEPT(p)": kept.expression, "JOINED(r)": joined.expression}
    return prod(digit.extent for digit in reduced), expressions, kept.parameters | joined.parameters


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel, by what becomes of the channels: reduced as well, or kept."""
    (source,) = node.required
    shape, axes = context.value(source).shape, node.attributes["axes"]
    if suits_groups(context.device) and context.value(source).type is F32:
        return [_in_groups(node, context, source)]
    if len(shape) - 1 in axes:
        return [spec.Candidate("rows", (_rows(node, context, source),))]
    return [spec.Candidate("columns", (_columns(node, context, source),))]


def _rows(node: Node, context: spec.Context, source: int) -> spec.Launch:
    """Channels and any leading dimensions; a unit is 16 channels of an output pixel."""
    before, after = context.value(source), context.value(node.outputs[0])
    rows, expressions, steps = _views(node, context, source)
    element, blocks = before.type, ceil_div(after.channels, LANES)
    instance = spec.function(
        "reduction/reduce_rows.cl",
        f"f32_reduce_{_kind(node, element)}_{element.value}_rows",
        spec.joined(_arithmetic(node, element), expressions),
        **steps,
        REDUCED=rows,
        CHANNELS=before.channels,
        OUT_CHANNELS=after.channels,
        OUT_STRIDE=context.layout(node.outputs[0]).pixel_stride,
        **divisor("BLOCKS", blocks),
        **_factor(node, element, rows * before.channels),
    )
    return _launch(node, context, instance, (source, node.outputs[0]), units=after.pixels * blocks)


def _columns(node: Node, context: spec.Context, source: int) -> spec.Launch:
    """Leading dimensions; a unit is one output pixel and 16 or 32 channels."""
    before, after = context.value(source), context.value(node.outputs[0])
    rows, expressions, steps = _views(node, context, source)
    channels = round_up(before.channels)
    # Two columns per unit use each cache line pair once; one column where there is too little work for all.
    plenty = after.pixels * channels // 32 >= 4 * context.device.compute_units
    element = before.type
    block = 32 if channels % 32 == 0 and plenty else 16
    instance = spec.function(
        "reduction/reduce.cl",
        spec.instance_name(f"reduce_{_kind(node, element)}_{element.value}", f"c{block}"),
        spec.joined(_arithmetic(node, element), expressions, {"BLOCK": block}),
        **steps,
        REDUCED=rows,
        CHANNELS=channels,
        OUT_STRIDE=context.layout(node.outputs[0]).pixel_stride,
        **_factor(node, element, rows),
    )
    units = after.pixels * (channels // block)
    return _launch(node, context, instance, (source, node.outputs[0]), units=units)


@dataclass(frozen=True, slots=True)
class _Reduced:
    """The work of a reducing kernel of work-groups: `pixels` to each of `outputs`, and their positions.

    `pixels_at` has the generated expressions, `steps` their parameters.
    """

    source: spec.Argument
    channels: int
    pixels: int
    outputs: int
    pixels_at: dict[str, str]
    steps: dict[str, int]


def _in_groups(node: Node, context: spec.Context, source: int) -> spec.Candidate:
    """One launch; where it has too few work-items, one of ranges of the pixels and one that joins them.

    Ranges keep the channels, so that the second launch reduces these where the node does.
    """
    before = context.value(source)
    pixels, expressions, steps = _views(node, context, source)
    whole = _Reduced(source, before.channels, pixels, before.pixels // max(pixels, 1), expressions, steps)
    count = pixels
    join = _columns_in_groups
    if len(before.shape) - 1 in node.attributes["axes"]:
        join, count = _rows_in_groups, pixels * before.channels
    launch = join(node, context, whole, count)
    ranges = _ranges(whole) if launch.work_items < FEWEST_ITEMS else 1
    if ranges == 1:
        return spec.Candidate("groups", (launch,))
    first, scratch = _ranges_in_groups(node, context, whole, ranges)
    stride = round_up(before.channels)
    # May be fewer than asked for, as ranges of one size can cover the pixels sooner.
    ranges = first.groups[2]
    # The partial results lie as [range][output][padded channels].
    kept = offset("KEPT", [Digit(whole.outputs, stride)], "(p)")
    joined = offset("JOINED", [Digit(ranges, whole.outputs * stride)], "(r)")
    parts = _Reduced(
        scratch,
        before.channels,
        ranges,
        whole.outputs,
        {"KEPT(p)": kept.expression, "JOINED(r)": joined.expression},
        kept.parameters | joined.parameters,
    )
    size = ranges * whole.outputs * before.channels
    last = replace(join(node, context, parts, count), flops=size, bytes=4 * size)
    return spec.Candidate(f"groups_ranges{ranges}", (first, last))


def _lanes(pixels: int) -> int:
    return next((count for count in _LANES if pixels >= count), _LANES[-1])


def _ranges(whole: _Reduced) -> int:
    """Ranges of the pixels for enough work-items, 1 where each would have too little to do."""
    lanes = _lanes(whole.pixels)
    items = ceil_div(round_up(whole.channels) // QUAD, GROUP_ITEMS // lanes) * whole.outputs * GROUP_ITEMS
    return max(1, min(ceil_div(FEWEST_ITEMS, items), whole.pixels // (lanes * _RANGE)))


def _ranges_in_groups(
    node: Node, context: spec.Context, whole: _Reduced, ranges: int
) -> tuple[spec.Launch, spec.Scratch]:
    """Return the launch that reduces ranges of pixels, and the memory that takes their results."""
    channels, lanes = round_up(whole.channels), _lanes(whole.pixels)
    size = ceil_div(whole.pixels, ranges)
    ranges = ceil_div(whole.pixels, size)
    scratch = spec.Scratch("ranges", ranges * whole.outputs * channels)
    sizes = {"CHANNELS": channels, "RANGE": size, "OUTPUTS": whole.outputs}
    instance, groups = _columns_instance(node, whole, lanes, sizes, is_split=True)
    launch = _launch(node, context, instance, (whole.source, scratch), (*groups, ranges))
    # The epilogue belongs to the results, which only the second launch has.
    return replace(launch, epilogue=spec.Epilogue()), scratch


def _columns_instance(
    node: Node, given: _Reduced, lanes: int, sizes: Mapping[str, int | float], *, is_split: bool
) -> tuple[spec.Instance, tuple[int, int]]:
    """Return the kernel whose work-items share an output of four channels, and its groups."""
    quads = GROUP_ITEMS // lanes
    instance = spec.function(
        "reduction/reduce_groups.cl",
        spec.instance_name(f"groups_reduce_{_kind(node, F32)}", f"l{lanes}"),
        spec.joined(_of_floats(_arithmetic(node, F32)), given.pixels_at, {"LANES": lanes, "SPLIT": is_split}),
        WorkGroup((quads, lanes, 1), (LocalArray("partial", "float4", GROUP_ITEMS),)),
        **given.steps,
        REDUCED=given.pixels,
        **sizes,
    )
    return instance, (ceil_div(round_up(given.channels) // QUAD, quads), given.outputs)


def _columns_in_groups(node: Node, context: spec.Context, given: _Reduced, count: int) -> spec.Launch:
    """Work-items that share an output of four channels, each of `count` elements."""
    target = node.outputs[0]
    sizes = {
        "CHANNELS": round_up(given.channels),
        "OUT_STRIDE": context.layout(target).pixel_stride,
        **_factor(node, F32, count),
    }
    instance, groups = _columns_instance(node, given, _lanes(given.pixels), sizes, is_split=False)
    return _launch(node, context, instance, (given.source, target), (*groups, 1))


def _rows_in_groups(node: Node, context: spec.Context, given: _Reduced, count: int) -> spec.Launch:
    """Work-items that share an output, which is of `count` elements."""
    target = node.outputs[0]
    after = context.value(target)
    is_single = after.channels == 1
    items, rows = row_group(given.pixels * given.channels)
    if is_single:
        rows = 1
    else:
        # Whole vectors of results, all of one pixel.
        rows = min(max(rows, QUAD), LANES)
        items = GROUP_ITEMS // rows
    padded = round_up(after.channels)
    groups = (after.pixels if is_single else after.pixels * padded // rows, 1)
    shared = (LocalArray("partial", "float4", items * rows), LocalArray("results", "float", rows))
    instance = spec.function(
        "reduction/reduce_rows_groups.cl",
        spec.instance_name(f"groups_reduce_{_kind(node, F32)}_rows", f"r{items}"),
        spec.joined(
            _of_floats(_arithmetic(node, F32)),
            given.pixels_at,
            {"ROW_ITEMS": items, "ROWS": rows, "SINGLE": is_single},
        ),
        WorkGroup((items, rows), shared),
        **given.steps,
        REDUCED=given.pixels,
        CHANNELS=given.channels,
        OUT_CHANNELS=after.channels,
        OUT_STRIDE=context.layout(target).pixel_stride,
        **divisor("QUADS", ceil_div(given.channels, QUAD)),
        **divisor("PADDED", padded),
        **_factor(node, F32, count),
    )
    return _launch(node, context, instance, (given.source, target), groups)


def _of_floats(arithmetic: dict[str, str]) -> dict[str, str]:
    """Return the part of the arithmetic that kernels of float32 alone need."""
    return {name: text for name, text in arithmetic.items() if name not in ("T", "P")}


def _launch(
    node: Node,
    context: spec.Context,
    instance: spec.Instance,
    args: tuple[spec.Argument, ...],
    groups: tuple[int, ...] = (),
    units: int = 0,
) -> spec.Launch:
    """Return a launch of units or, if there are `groups`, of work-groups."""
    before, after = context.value(node.first), context.value(node.outputs[0])
    return spec.Launch(
        instance,
        args,
        units=prod(groups) if groups else units,
        label=f"{node.op.name} {'x'.join(map(str, before.shape))}",
        sources=node.sources,
        flops=before.elements,
        bytes=before.type.size * (before.elements + after.elements),
        epilogue=spec.epilogue_of(node, context.graph, QUAD if groups else LANES),
        groups=groups,
    )


_TYPES = {
    **dict.fromkeys((Op.SUM, Op.REDUCE_MAX, Op.REDUCE_MIN, Op.REDUCE_PROD), (F32, I32, I64, BOOL)),
    Op.MEAN: (F32, I32, I64, I8),
    **dict.fromkeys((Op.REDUCE_ANY, Op.REDUCE_ALL), (BOOL,)),
}

FAMILY = spec.Family(
    operators=tuple(_KINDS),
    read=_read,
    lower=lower,
    supports=_supports,
    epilogue=True,
    parameters=(1,),
    types={op: spec.Types((types, (F32,)), (types,), alike=True) for op, types in _TYPES.items()},
)
