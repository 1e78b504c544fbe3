"""MediaPipe's custom operators on landmarks: a crop's matrix, the crop of an image, and the way back."""

from collections.abc import Mapping

import numpy as np

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import Custom, Kind, Node
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.lowering import spec
from runtime.ops.image.landmarks import VERSION, Crop, crop_options

_MATRIX, _CROP, _MOVED = (
    Custom.LANDMARKS_TO_TRANSFORM_MATRIX,
    Custom.TRANSFORM_TENSOR_BILINEAR,
    Custom.TRANSFORM_LANDMARKS,
)

_PARTS: Mapping[Kind, str] = {_MATRIX: "matrix", _CROP: "crop", _MOVED: "moved"}
"""Operator → the part of its kernel's name behind the family's."""

_OPERATIONS = 8
"""Operations for each number: of a mean of four pixels, or of turning a landmark."""


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    return None if facts.operator.version == VERSION else Unsupported(f"only version {VERSION} has a kernel")


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    is_matrix = facts.operator.name == _MATRIX.value
    return spec.NodeSpec(facts.operator.inputs, {"crop": crop_options(facts.operator)} if is_matrix else {})


def _around(node: Node) -> tuple[spec.PackedConstant, dict[str, int | float]]:
    """Return the subset of the landmarks and the parameters of the matrix of a crop around it."""
    crop: Crop = node.attributes["crop"]
    name, count = f"landmarks{node.id}_subset", len(crop.subset)
    subset = spec.PackedConstant(name, count, lambda: np.array(crop.subset), ElementType.I32)
    return subset, {
        "COUNT": count,
        "LEFT": crop.left,
        "RIGHT": crop.right,
        "ROTATION": crop.rotation,
        "SCALE_X": crop.scale[0] / crop.size[0],
        "SCALE_Y": crop.scale[1] / crop.size[1],
        "HALF_X": crop.size[0] / 2,
        "HALF_Y": crop.size[1] / 2,
    }


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel; a unit is the whole matrix, a pixel of the crop, or a landmark."""
    source, target = node.first, node.outputs[0]
    before, after = context.value(source), context.value(target)
    numbers: dict[str, int | float] = {**context.strides(IN=source, OUT=target)}
    second: spec.Argument
    if node.op is _MATRIX:
        second, more = _around(node)
        numbers |= more
    else:
        matrix = node.input(1)
        second = context.pointer(matrix)
        numbers["MATRIX_STRIDE"] = context.layout(matrix).pixel_stride
    if node.op is _CROP:
        _, height, width, channels = before.shape
        numbers |= {"IN_H": height, "IN_W": width, "CHANNELS": channels, **divisor("OUT_W", after.shape[2])}
    elif node.op is _MOVED:
        numbers["DIMENSIONS"] = after.channels
    part = _PARTS[node.op]
    launch = context.launch(
        node,
        spec.function(f"image/landmarks_{part}.cl", f"f32_landmarks_{part}", {}, **numbers),
        (context.pointer(source), second, target),
        1 if node.op is _MATRIX else after.pixels,
        spec.Work(flops=_OPERATIONS * (before if node.op is _MATRIX else after).elements),
    )
    return [spec.Candidate("units", (launch,))]


FAMILY = spec.Family(operators=tuple(_PARTS), read=_read, lower=lower, supports=_supports)
