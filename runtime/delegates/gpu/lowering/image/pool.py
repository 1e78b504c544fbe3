"""MAX_POOL_2D, AVERAGE_POOL_2D and L2_POOL_2D."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph import Kind, Node, round_up
from runtime.delegates.gpu.lowering.spec import (
    MOST_REACH,
    Candidate,
    Context,
    Family,
    Instance,
    Launch,
    NodeSpec,
    OperatorFacts,
    activation_of,
    defines,
    epilogue_of,
    instance_name,
    window_attributes,
)
from runtime.delegates.gpu.parameters import parameters
from runtime.model.schema import BuiltinOperator as Op

_KINDS: Mapping[Kind, int] = {Op.AVERAGE_POOL_2D: 0, Op.MAX_POOL_2D: 1, Op.L2_POOL_2D: 2}


def _supports(facts: OperatorFacts) -> Unsupported | None:
    if activation_of(facts) == "SIGN_BIT":
        return Unsupported("the fused activation SIGN_BIT has no kernel")
    if max(int(facts.options[f"filter_{side}"]) for side in ("height", "width")) > MOST_REACH:
        return Unsupported("so large a window has no kernel")
    return None


def _read(facts: OperatorFacts) -> NodeSpec:
    height, width = int(facts.options["filter_height"]), int(facts.options["filter_width"])
    attributes = {"filter_h": height, "filter_w": width, **window_attributes(facts, height, width)}
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
    launch = Launch(
        Instance(
            "image/pool.cl",
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
            ),
        ),
        (source, target),
        units=n * out_h,
        label=f"{node.op.name} {window} {out_h}x{out_w}x{channels}",
        sources=node.sources,
        flops=after.elements * a["filter_h"] * a["filter_w"],
        bytes=4 * (before.elements + after.elements),
        epilogue=epilogue_of(node, context.graph),
    )
    return [Candidate("rows", (launch,))]


FAMILY = Family(operators=tuple(_KINDS), read=_read, lower=lower, supports=_supports, epilogue=True)
