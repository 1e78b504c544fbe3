"""MAX_POOL_2D, AVERAGE_POOL_2D and L2_POOL_2D."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import Kind, Node, round_up
from runtime.delegates.gpu.graph.parameters import divisor, parameters
from runtime.delegates.gpu.graph.simulation import levels_of
from runtime.delegates.gpu.graph.work_groups import QUAD, strided, suits_groups
from runtime.delegates.gpu.lowering.spec import (
    MOST_REACH,
    Candidate,
    Context,
    Family,
    Instance,
    Launch,
    NodeSpec,
    OperatorFacts,
    Types,
    activation_of,
    defines,
    epilogue_of,
    instance_name,
    window_attributes,
)
from runtime.model.schema import ActivationFunctionType, TensorType
from runtime.model.schema import BuiltinOperator as Op
from runtime.ops.support.quantization import activation_range

_KINDS: Mapping[Kind, int] = {Op.AVERAGE_POOL_2D: 0, Op.MAX_POOL_2D: 1, Op.L2_POOL_2D: 2}


def _supports(facts: OperatorFacts) -> Unsupported | None:
    if activation_of(facts) == "SIGN_BIT":
        return Unsupported("the fused activation SIGN_BIT has no kernel")
    if max(int(facts.options[f"filter_{side}"]) for side in ("height", "width")) > MOST_REACH:
        return Unsupported("so large a window has no kernel")
    if _is_of_levels(facts):
        tensors = facts.graph.subgraph.tensors
        given, made = (levels_of(tensors[i]) for i in (facts.operator.inputs[0], facts.operator.outputs[0]))
        if given is None or given != made or activation_of(facts) == "TANH":
            return Unsupported("a pool of int8 needs one scale for input and output, and no activation TANH")
    return None


def _is_of_levels(facts: OperatorFacts) -> bool:
    return facts.types.get(facts.operator.inputs[0]) is ElementType.I8


def _bounds(facts: OperatorFacts) -> dict[str, int]:
    """`low` and `high`: the output's levels under the fused activation."""
    levels = levels_of(facts.graph.subgraph.tensors[facts.operator.outputs[0]])
    if levels is None:
        raise ValueError("a pool of levels was accepted without a scale")
    kind = ActivationFunctionType[activation_of(facts)]
    low, high = activation_range(kind, levels.scale, levels.zero_point, TensorType.INT8)
    return {"low": low, "high": high}


def _read(facts: OperatorFacts) -> NodeSpec:
    height, width = int(facts.options["filter_height"]), int(facts.options["filter_width"])
    attributes = {"filter_h": height, "filter_w": width, **window_attributes(facts, height, width)}
    if _is_of_levels(facts):
        return NodeSpec(facts.operator.inputs, {**attributes, **_bounds(facts)})
    return NodeSpec(facts.operator.inputs, attributes, activation_of(facts))


def lower(node: Node, context: Context) -> Sequence[Candidate]:
    """One kernel, a unit for each output row."""
    (source,), (target,) = node.inputs, node.outputs
    if source is None:
        raise ValueError("a pool has one input")
    before, after, a = context.value(source), context.value(target), node.attributes
    n, in_h, in_w, _ = before.shape
    _, out_h, out_w, channels = after.shape
    window = f"{a['filter_h']}x{a['filter_w']}s{a['stride_h']}"
    is_of_levels = after.type is ElementType.I8
    bounds = {"LOW": a["low"], "HIGH": a["high"]} if is_of_levels else {}
    if suits_groups(context.device) and not is_of_levels:
        return [_in_groups(node, context, source, window)]
    launch = Launch(
        Instance(
            "image/pool_levels.cl" if is_of_levels else "image/pool.cl",
            instance_name(f"pool_{node.op.name.partition('_')[0].lower()}"),
            defines(KIND=_KINDS[node.op]),
            parameters(
                IN_H=in_h,
                IN_W=in_w,
                OUT_H=out_h,
                OUT_W=out_w,
                FILTER_H=a["filter_h"],
                FILTER_W=a["filter_w"],
                STRIDE_H=a["stride_h"],
                STRIDE_W=a["stride_w"],
                PAD_TOP=a["pad_top"],
                PAD_LEFT=a["pad_left"],
                CHANNELS=round_up(channels),
                IN_STRIDE=context.layout(source).pixel_stride,
                OUT_STRIDE=context.layout(target).pixel_stride,
                **bounds,
            ),
        ),
        (source, target),
        units=n * out_h,
        label=f"{node.op.name} {window} {out_h}x{out_w}x{channels}",
        sources=node.sources,
        flops=after.elements * a["filter_h"] * a["filter_w"],
        bytes=after.type.size * (before.elements + after.elements),
        epilogue=epilogue_of(node, context.graph),
    )
    return [Candidate("rows", (launch,))]


def _in_groups(node: Node, context: Context, source: int, window: str) -> Candidate:
    """Return the candidate with a work-item for four channels of a pixel."""
    (target,), a = node.outputs, node.attributes
    before, after = context.value(source), context.value(target)
    _, in_h, in_w, _ = before.shape
    _, out_h, out_w, channels = after.shape
    vectors = round_up(channels) // QUAD
    group, groups = strided(after.pixels * vectors)
    steps = {name.upper(): a[name] for name in ("stride_h", "stride_w", "pad_top", "pad_left")}
    launch = Launch(
        Instance(
            "image/pool_groups.cl",
            instance_name(f"groups_pool_{node.op.name.partition('_')[0].lower()}"),
            defines(KIND=_KINDS[node.op]),
            parameters(
                **steps,
                TOTAL=after.pixels * vectors,
                IN_H=in_h,
                IN_W=in_w,
                FILTER_H=a["filter_h"],
                FILTER_W=a["filter_w"],
                IN_STRIDE=context.layout(source).pixel_stride,
                OUT_STRIDE=context.layout(target).pixel_stride,
                **divisor("VECTORS", vectors),
                **divisor("OUT_PIXELS", out_h * out_w),
                **divisor("OUT_W", out_w),
            ),
            group,
        ),
        (source, target),
        units=groups[0],
        label=f"{node.op.name} {window} {out_h}x{out_w}x{channels}",
        sources=node.sources,
        flops=after.elements * a["filter_h"] * a["filter_w"],
        bytes=4 * (before.elements + after.elements),
        epilogue=epilogue_of(node, context.graph, QUAD),
        groups=groups,
    )
    return Candidate("groups", (launch,))


_REAL_OR_LEVELS = (ElementType.F32, ElementType.I8)

FAMILY = Family(
    operators=tuple(_KINDS),
    read=_read,
    lower=lower,
    supports=_supports,
    epilogue=True,
    types=dict.fromkeys(
        (Op.AVERAGE_POOL_2D, Op.MAX_POOL_2D), Types((_REAL_OR_LEVELS,), (_REAL_OR_LEVELS,), alike=True)
    ),
)
