"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.graph import Node, round_up
from runtime.delegates.gpu.graph.work_groups import image_places, strided_vectors, suits_groups
from runtime.delegates.gpu.lowering import spec
from runtime.model.schema import BuiltinOperator as Op


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    if facts.options.get("align_corners") and facts.options.get("half_pixel_centers"):
        return Unsupported("align_corners and half_pixel_centers exclude each other")
    return None


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    flags = {name: bool(facts.options.get(name, False)) for name in ("align_corners", "half_pixel_centers")}
    return spec.NodeSpec(facts.operator.inputs[:1], flags)


def _scale(size: int, output: int, align_corners: bool) -> float:
    """Input pixels per output pixel."""
    return (size - 1) / (output - 1) if align_corners and output > 1 else size / output


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel: a unit is an output row, a work-item takes four channels of a pixel."""
    (source,), (target,), a = node.required, node.outputs, node.attributes
    before, after = context.value(source), context.value(target)
    _, in_h, in_w, _ = before.shape
    images, out_h, out_w, channels = after.shape
    is_bilinear, in_groups = node.op == Op.RESIZE_BILINEAR, suits_groups(context.device)
    name = f"resize_{'bilinear' if is_bilinear else 'nearest'}"
    kind = {
        "ALIGN_CORNERS": a["align_corners"],
        "HALF_PIXEL": a["half_pixel_centers"],
        "BILINEAR": is_bilinear,
    }
    shape: dict[str, int | float] = {
        "IN_H": in_h,
        "IN_W": in_w,
        "SCALE_H": _scale(in_h, out_h, a["align_corners"]),
        "SCALE_W": _scale(in_w, out_w, a["align_corners"]),
        **context.strides(IN=source, OUT=target),
    }
    units: int | tuple[int, ...]
    if in_groups:
        group, units, vectors = strided_vectors(after)
        shape |= vectors | image_places(after)
        instance = spec.function("image/resize_groups.cl", f"f32_groups_{name}", kind, group, **shape)
    else:
        shape |= {"OUT_H": out_h, "OUT_W": out_w, "CHANNELS": round_up(channels)}
        instance, units = (spec.function("image/resize.cl", f"f32_{name}", kind, **shape), images * out_h)
    launch = context.launch(
        node,
        instance,
        (source, target),
        units,
        note=f"{out_h}x{out_w}x{channels}",
        flops=after.elements * (7 if is_bilinear else 0),
    )
    return [spec.Candidate("groups" if in_groups else "rows", (launch,))]


FAMILY = spec.Family(
    operators=(Op.RESIZE_BILINEAR, Op.RESIZE_NEAREST_NEIGHBOR),
    read=_read,
    lower=lower,
    supports=_supports,
    parameters=(1,),
    epilogue=True,
)
