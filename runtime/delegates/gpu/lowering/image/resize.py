"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.graph import Node, round_up
from runtime.delegates.gpu.graph.parameters import divisor, parameters
from runtime.delegates.gpu.graph.work_groups import QUAD, strided, suits_groups
from runtime.delegates.gpu.lowering.spec import (
    Candidate,
    Context,
    Family,
    Instance,
    Launch,
    NodeSpec,
    OperatorFacts,
    defines,
    epilogue_of,
    instance_name,
)
from runtime.model.schema import BuiltinOperator as Op


def _supports(facts: OperatorFacts) -> Unsupported | None:
    if facts.options.get("align_corners") and facts.options.get("half_pixel_centers"):
        return Unsupported("align_corners and half_pixel_centers exclude each other")
    return None


def _read(facts: OperatorFacts) -> NodeSpec:
    flags = {name: bool(facts.options.get(name, False)) for name in ("align_corners", "half_pixel_centers")}
    return NodeSpec(facts.operator.inputs[:1], flags)


def _scale(size: int, output: int, align_corners: bool) -> float:
    """Input pixels per output pixel."""
    return (size - 1) / (output - 1) if align_corners and output > 1 else size / output


def lower(node: Node, context: Context) -> Sequence[Candidate]:
    """One kernel, a unit for each output row."""
    (source,), (target,) = node.inputs, node.outputs
    if source is None:
        raise ValueError(f"{node.op.name} needs its first input")
    before, after, a = context.value(source), context.value(target), node.attributes
    n, in_h, in_w, channels = before.shape
    _, out_h, out_w, _ = after.shape
    bilinear = node.op == Op.RESIZE_BILINEAR
    if suits_groups(context.device):
        return [_in_groups(node, context, source)]
    launch = Launch(
        Instance(
            "image/resize.cl",
            instance_name(f"resize_{'bilinear' if bilinear else 'nearest'}"),
            defines(ALIGN_CORNERS=a["align_corners"], HALF_PIXEL=a["half_pixel_centers"], BILINEAR=bilinear),
            parameters(
                IN_H=in_h,
                IN_W=in_w,
                OUT_H=out_h,
                OUT_W=out_w,
                CHANNELS=round_up(channels),
                IN_STRIDE=context.layout(source).pixel_stride,
                OUT_STRIDE=context.layout(target).pixel_stride,
                SCALE_H=_scale(in_h, out_h, a["align_corners"]),
                SCALE_W=_scale(in_w, out_w, a["align_corners"]),
            ),
        ),
        (source, target),
        units=n * out_h,
        label=f"{node.op.name} {out_h}x{out_w}x{channels}",
        sources=node.sources,
        flops=after.elements * (7 if bilinear else 0),
        bytes=4 * (before.elements + after.elements),
        epilogue=epilogue_of(node, context.graph),
    )
    return [Candidate("rows", (launch,))]


def _in_groups(node: Node, context: Context, source: int) -> Candidate:
    """Return the candidate with a work-item for four channels of a pixel."""
    (target,), a = node.outputs, node.attributes
    before, after = context.value(source), context.value(target)
    _, in_h, in_w, channels = before.shape
    _, out_h, out_w, _ = after.shape
    bilinear = node.op == Op.RESIZE_BILINEAR
    vectors = round_up(channels) // QUAD
    group, groups = strided(after.pixels * vectors)
    launch = Launch(
        Instance(
            "image/resize_groups.cl",
            instance_name(f"groups_resize_{'bilinear' if bilinear else 'nearest'}"),
            defines(ALIGN_CORNERS=a["align_corners"], HALF_PIXEL=a["half_pixel_centers"], BILINEAR=bilinear),
            parameters(
                TOTAL=after.pixels * vectors,
                IN_H=in_h,
                IN_W=in_w,
                IN_STRIDE=context.layout(source).pixel_stride,
                OUT_STRIDE=context.layout(target).pixel_stride,
                SCALE_H=_scale(in_h, out_h, a["align_corners"]),
                SCALE_W=_scale(in_w, out_w, a["align_corners"]),
                **divisor("VECTORS", vectors),
                **divisor("OUT_PIXELS", out_h * out_w),
                **divisor("OUT_W", out_w),
            ),
            group,
        ),
        (source, target),
        units=groups[0],
        label=f"{node.op.name} {out_h}x{out_w}x{channels}",
        sources=node.sources,
        flops=after.elements * (7 if bilinear else 0),
        bytes=4 * (before.elements + after.elements),
        epilogue=epilogue_of(node, context.graph, QUAD),
        groups=groups,
    )
    return Candidate("groups", (launch,))


FAMILY = Family(
    operators=(Op.RESIZE_BILINEAR, Op.RESIZE_NEAREST_NEIGHBOR),
    read=_read,
    lower=lower,
    supports=_supports,
    parameters=(1,),
    epilogue=True,
)
