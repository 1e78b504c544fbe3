"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""

from collections.abc import Mapping
from typing import Any

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.element_type import ElementType
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


def _of_levels(size: int, output: int, name: str, attributes: Mapping[str, Any]) -> dict[str, int]:
    """Return scale and shift in 1024ths of a pixel, as LiteRT's `ComputeInterpolationValuesInteger`."""
    before, after = size, output
    if attributes["align_corners"] and output > 1:
        before, after = size - 1, output - 1
    # Half of `after` makes the division round to the nearest.
    scale = (1024 * before + after // 2) // after
    # Of (i + 0.5) * scale - 0.5, with 1024 for one pixel, what does not depend on i.
    shift = scale // 2 - 512 if attributes["half_pixel_centers"] else 0
    return {f"SCALE_{name}": scale, f"SHIFT_{name}": shift}


def _scale(size: int, output: int, align_corners: bool) -> float:
    """Input pixels per output pixel."""
    return (size - 1) / (output - 1) if align_corners and output > 1 else size / output


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel: a unit is an output row, a work-item takes four channels of a pixel."""
    (source,), (target,), a = node.required, node.outputs, node.attributes
    before, after = context.value(source), context.value(target)
    _, in_h, in_w, _ = before.shape
    images, out_h, out_w, channels = after.shape
    is_bilinear, is_of_levels = node.op == Op.RESIZE_BILINEAR, after.type is not ElementType.F32
    # The kernel of work-groups loads and stores floats alone.
    in_groups = suits_groups(context.device) and not is_of_levels
    name = f"resize_{'bilinear' if is_bilinear else 'nearest'}"
    kind: dict[str, int | str] = {
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
        file, kind["T"], units = "image/resize.cl", after.type.opencl, images * out_h
        # Nearest neighbours of levels are copied as they are, by the kernel of floats with another T.
        if is_bilinear and is_of_levels:
            file, kind = "image/resize_levels.cl", {"IN_FLOATS": after.type is ElementType.U8}
            half = 0.5 if a["half_pixel_centers"] else 0.0
            shape |= {"SHIFT_H": half, "SHIFT_W": half}
            if after.type is ElementType.I8:
                shape |= _of_levels(in_h, out_h, "H", a) | _of_levels(in_w, out_w, "W", a)
        prefix = "i8" if is_of_levels else "f32"
        instance = spec.function(file, f"{prefix}_{name}", kind, **shape)
    launch = context.launch(
        node,
        instance,
        (source, target),
        units,
        spec.Work(f"{out_h}x{out_w}x{channels}", after.elements * (7 if is_bilinear else 0)),
    )
    return [spec.Candidate("groups" if in_groups else "rows", (launch,))]


_TYPES = (ElementType.F32, ElementType.I8, ElementType.U8)

FAMILY = spec.Family(
    operators=(Op.RESIZE_BILINEAR, Op.RESIZE_NEAREST_NEIGHBOR),
    read=_read,
    lower=lower,
    supports=_supports,
    parameters=(1,),
    epilogue=True,
    types=dict.fromkeys(
        (Op.RESIZE_BILINEAR, Op.RESIZE_NEAREST_NEIGHBOR),
        spec.Types((_TYPES, (ElementType.F32,)), (_TYPES,), alike=True),
    ),
)
