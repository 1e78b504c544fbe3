"""MediaPipe's custom operators on landmarks: the crop around some of them, the image in it, and the way back.

Landmarks2TransformMatrix (landmarks [1, L, 3] → matrix [1, 4, 4]) finds the rotated rectangle around a subset
of the landmarks; TransformTensorBilinear (image [1, H, W, C], matrix → [1, h, w, C]) cuts it out;
TransformLandmarks (landmarks [1, L, 2 or 3], matrix → the same shape) takes landmarks of the crop back into
the image. All are float32, of version 2, and of one image: the definitions in
`mediapipe/util/tflite/operations` leave out every other batch row.
"""

from dataclasses import dataclass

import numpy as np

from runtime.errors import ModelFormatError
from runtime.model.flexbuffer import number, read_map
from runtime.model.graph import Operator
from runtime.ops.support import Array, Kernel, OpContext, Shape, TensorType
from runtime.ops.support.registry import custom_operator
from runtime.ops.support.shapes import image_shape, require_rank

VERSION = 2
"""The version of the three operators that published models have; the first one has other options."""

_MATRIX = (1, 4, 4)
"""The shape of a matrix of homogeneous coordinates, as the definitions fix it."""


@dataclass(frozen=True, slots=True)
class Crop:
    """The options of Landmarks2TransformMatrix: `subset` holds the indices of the landmarks to enclose.

    The line from `left` to `right` comes to lie at `rotation`, in radians; the rectangle is `scale` times as
    large as what it encloses, and becomes `size` pixels. Pairs are width and height.
    """

    subset: tuple[int, ...]
    left: int
    right: int
    rotation: float
    scale: tuple[float, float]
    size: tuple[int, int]


def crop_options(operator: Operator) -> Crop:
    """Read the options of Landmarks2TransformMatrix. Raises `ModelFormatError` for missing or wrong ones."""
    found = read_map(operator.custom_options)
    subset = found.get("subset_idxs")
    if not isinstance(subset, list) or not subset or not all(isinstance(i, int) for i in subset):
        raise ModelFormatError("options: subset_idxs is not a list of indices")
    width, height, scale_x, scale_y = (
        number(found, name) for name in ("output_width", "output_height", "scale_x", "scale_y")
    )
    if min(width, height, scale_x, scale_y) <= 0:
        raise ModelFormatError("options: the output's size and the scales must be above 0")
    return Crop(
        tuple(subset),
        int(number(found, "left_rotation_idx")),
        int(number(found, "right_rotation_idx")),
        float(number(found, "target_rotation_radians", 0.0)),
        (float(scale_x), float(scale_y)),
        (int(width), int(height)),
    )


def _require_version(op: OpContext) -> None:
    if op.operator.version != VERSION:
        raise op.unsupported(f"only version {VERSION} has a kernel")


def _require_matrix(op: OpContext) -> None:
    if op.input(1).shape != _MATRIX:
        raise op.error(f"a matrix of shape {list(op.input(1).shape)}, not {list(_MATRIX)}")


def _matrix_shape(op: OpContext) -> tuple[Shape, ...]:
    _require_version(op)
    shape, crop = require_rank(op, 0, 3), crop_options(op.operator)
    if shape[0] != 1 or shape[2] != 3:
        raise op.error(f"landmarks of shape {list(shape)} are not [1, L, 3]")
    if not all(0 <= i < shape[1] for i in (*crop.subset, crop.left, crop.right)):
        raise op.error(f"its options name a landmark that is not among the {shape[1]}")
    return (_MATRIX,)


@custom_operator("Landmarks2TransformMatrix", infer=_matrix_shape, max_version=VERSION)
def landmarks_to_matrix(op: OpContext) -> Kernel:
    """Landmarks2TransformMatrix: from pixels of the crop to those of the image."""
    op.require(TensorType.FLOAT32)
    landmarks, y, crop = op.read().reshape(-1, 3), op.write(), crop_options(op.operator)
    subset, size = np.array(crop.subset), np.array(crop.size, np.float32)
    scale = np.array(crop.scale, np.float32) / size

    def run() -> None:
        across, down, _ = landmarks[crop.right] - landmarks[crop.left]
        angle = np.float32(crop.rotation) - np.arctan2(down, across)
        turn = _turn(angle)
        places = landmarks[subset, :2] @ turn.T
        low, high = places.min(axis=0), places.max(axis=0)
        back = _turn(-angle)
        found = np.eye(4, dtype=np.float32)
        found[:2, :2] = back * (scale * (high - low))
        # The crop's centre becomes the rectangle's.
        found[:2, 3] = back @ ((low + high) / 2) - found[:2, :2] @ (size / 2)
        np.copyto(y, found[None])

    return run


def _turn(angle: np.float32) -> Array:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]], np.float32)


def _crop_shape(op: OpContext) -> tuple[Shape, ...]:
    _require_version(op)
    shape, options = image_shape(op), read_map(op.operator.custom_options)
    _require_matrix(op)
    height, width = (int(number(options, f"output_{side}")) for side in ("height", "width"))
    if shape[0] != 1 or min(height, width) < 1:
        raise op.error(f"{height}x{width} pixels of an image of shape {list(shape)}")
    return ((1, height, width, shape[3]),)


@custom_operator("TransformTensorBilinear", infer=_crop_shape, max_version=VERSION)
def transform_image(op: OpContext) -> Kernel:
    """TransformTensorBilinear: read the image at each pixel's place, between its pixels; zero outside."""
    for i in range(2):
        op.require(TensorType.FLOAT32, i=i)
    image, matrix, y = op.read(0)[0], op.read(1).reshape(4, 4), op.write()[0]
    last = np.array((image.shape[1] - 1, image.shape[0] - 1), np.float32)
    rows, columns = np.indices(y.shape[:2], np.float32)

    def run() -> None:
        places = np.stack([_place(row, columns, rows) for row in matrix[:2]], axis=-1)
        inside = np.all((places >= 0) & (places <= last), axis=-1)
        # Any valid index will do for the pixels outside, which become zero at the end.
        places = np.where(inside[..., None], places, 0)
        first = np.floor(places)
        share = (places - first)[..., None]
        left, top = first.astype(np.intp)[..., 0], first.astype(np.intp)[..., 1]
        # What lies behind the last pixel has no share.
        right, bottom = np.minimum(left + 1, int(last[0])), np.minimum(top + 1, int(last[1]))
        upper = (1 - share[..., 0, :]) * image[top, left] + share[..., 0, :] * image[top, right]
        lower = (1 - share[..., 0, :]) * image[bottom, left] + share[..., 0, :] * image[bottom, right]
        np.copyto(y, share[..., 1, :] * lower + (1 - share[..., 1, :]) * upper)
        y[~inside] = 0

    return run


def _place(row: Array, x: Array, z: Array) -> Array:
    """Return a coordinate of the image for pixels of the crop, both counted from their pixels' centres."""
    shift = row[3] + (row[0] * np.float32(0.5) + row[1] * np.float32(0.5) - np.float32(0.5))
    return np.asarray(row[0] * x + row[1] * z + shift)


def _landmarks_shape(op: OpContext) -> tuple[Shape, ...]:
    _require_version(op)
    shape = require_rank(op, 0, 3)
    _require_matrix(op)
    if shape[0] != 1 or shape[2] not in (2, 3):
        raise op.error(f"landmarks of shape {list(shape)} are not [1, L, 2] or [1, L, 3]")
    return (shape,)


@custom_operator("TransformLandmarks", infer=_landmarks_shape, max_version=VERSION)
def transform_landmarks(op: OpContext) -> Kernel:
    """TransformLandmarks: move x and y by the matrix; z stays."""
    for i in range(2):
        op.require(TensorType.FLOAT32, i=i)
    landmarks, matrix, y = op.read(0), op.read(1).reshape(4, 4), op.write()

    def run() -> None:
        moved = landmarks[..., :2] @ matrix[:2, :2].T + matrix[:2, 3]
        np.copyto(y, landmarks)
        y[..., :2] = moved

    return run
