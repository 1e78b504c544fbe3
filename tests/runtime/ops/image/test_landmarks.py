"""MediaPipe's operators on landmarks by their definitions, and by numbers of MediaPipe's own interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from runtime.api.interpreter import Interpreter
from runtime.errors import ModelError
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Builder
from tests.runtime.ops.cases import Case, compare, run_ours
from tests.runtime.ops.gpu_expectations import TAKES

CROP: dict[str, Any] = {
    "left_rotation_idx": 3,
    "right_rotation_idx": 7,
    "output_height": 5,
    "output_width": 4,
    "scale_x": 1.5,
    "scale_y": 1.25,
    "subset_idxs": [3, 7, 11, 12, 15, 16, 20],
    "target_rotation_radians": 0.3,
}
SIZE = {"output_height": 5, "output_width": 4}


def custom(
    b: Builder,
    name: str,
    inputs: list[int],
    shape: tuple[int, ...],
    options: dict[str, Any] | None,
    version=2,
) -> int:
    """Add an operator whose result's shape the file declares: MediaPipe's kernel of a crop infers none."""
    made = b.tensor(np.float32, shape)
    data = b"" if options is None else packed(options)
    b.operator(Op.CUSTOM, inputs, [made], version=version, custom_code=name, custom_options=data)
    return made


def packed(options: dict[str, Any]) -> bytes:
    """Return a FlexBuffer with typed vectors, as MediaPipe's converter writes: its kernels read no others."""
    b = flexbuffers.Builder()
    with b.Map():
        for name, value in options.items():
            b.Key(name)
            b.TypedVectorFromElements(value) if isinstance(value, list) else b.Add(value)
    return bytes(b.Finish())


def chain() -> bytes:
    """From an image of 6 by 8 pixels to its 48 landmarks, a crop's matrix, the crop, and moved landmarks."""
    b = Builder()
    image = b.input(np.float32, (1, 6, 8, 3))

    def step(op: Op, inputs: list[int], options: dict[str, Any] | None = None) -> int:
        made = b.tensor(np.float32)
        b.operator(op, inputs, [made], options)
        return made

    large = step(Op.MUL, [image, b.constant(np.float32([7]))])
    landmarks = step(Op.RESHAPE, [large, b.constant(np.int32([1, 48, 3]))])
    flat = step(Op.RESHAPE, [large, b.constant(np.int32([1, 72, 2]))])
    matrix = custom(b, "Landmarks2TransformMatrix", [landmarks], (1, 4, 4), CROP)
    crop = custom(b, "TransformTensorBilinear", [image, matrix], (1, 5, 4, 3), SIZE)
    moved = custom(b, "TransformLandmarks", [landmarks, matrix], (1, 48, 3), None)
    flat_moved = custom(b, "TransformLandmarks", [flat, matrix], (1, 72, 2), None)
    return b.write([matrix, crop, moved, flat_moved])


def pixels() -> np.ndarray:
    return np.random.default_rng(4).integers(0, 256, (6, 8, 3)).astype(np.uint8)


def test_a_chain_of_the_three_gives_what_mediapipe_gives(backend):
    """The expected numbers are those of MediaPipe 0.10.9's `InferenceCalculator`, on its CPU kernels."""
    image = pixels()[None] / np.float32(255)
    found = run_ours(Case("", chain(), (image,), refused=TAKES), backend)
    for ours, (first, total) in zip(found, EXPECTED, strict=True):
        np.testing.assert_allclose(ours.reshape(-1)[: len(first)], first, rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(np.abs(ours).sum(dtype=np.float64), total, rtol=2e-5)


EXPECTED = [
    (
        [1.229843, 0.977427, 0, -0.155668, -1.71932, 0.699161, 0, 4.447613, 0, 0, 1, 0, 0, 0, 0, 1],
        11.229033,
    ),
    ([0.283115, 0.499459, 0.42705, 0.54171, 0.824446, 0.777033, 0, 0], 18.408519),
    ([12.556358, 0.341593, 6.176471, 10.672705, 2.918237, 6.835295, 8.753538, -6.873398], 736.00067),
    ([12.556358, 0.341593, 10.928495, -3.676674, 14.627831, -2.100703, 8.753538, -6.873398], 832.912457),
]
"""The first elements of each output, and the sum of all its absolute values."""


def crop(image: tuple[int, ...], size: tuple[int, int]) -> bytes:
    b = Builder()
    inputs = [b.input(np.float32, image), b.input(np.float32, (1, 4, 4))]
    options = {"output_height": size[0], "output_width": size[1]}
    return b.write([custom(b, "TransformTensorBilinear", inputs, (1, *size, image[3]), options)])


@pytest.mark.parametrize(("shape", "size"), [((1, 1, 1, 1), (2, 3)), ((1, 9, 7, 33), (12, 10))], ids=str)
def test_the_pixels_of_a_crop_lie_at_their_places_in_the_image(shape, size, backend):
    """A turned and shifted grid, part of it outside; the definition, pixel by pixel."""
    rng = np.random.default_rng(shape[3])
    image, matrix = rng.standard_normal(shape).astype(np.float32), np.eye(4, dtype=np.float32)[None]
    matrix[0, :2, :2] = rng.uniform(-1, 1, (2, 2))
    matrix[0, :2, 3] = rng.uniform(0, shape[1] / 2, 2)
    expected = np.zeros((1, *size, shape[3]), np.float32)
    for i, j in np.ndindex(size):
        x, y = (row[0] * (j + 0.5) + row[1] * (i + 0.5) + row[3] - 0.5 for row in matrix[0, :2].astype(float))
        if not (0 <= x <= shape[2] - 1 and 0 <= y <= shape[1] - 1):
            continue
        around = np.pad(image[0], ((0, 1), (0, 1), (0, 0)))[int(y) : int(y) + 2, int(x) : int(x) + 2]
        shares = np.outer([1 - y % 1, y % 1], [1 - x % 1, x % 1])
        expected[0, i, j] = np.tensordot(shares, around, 2)
    (found,) = run_ours(Case("", crop(shape, size), (image, matrix), refused=TAKES), backend)
    compare(found, expected)


@pytest.mark.parametrize(
    ("changed", "shape", "version", "text"),
    [
        ({}, (1, 21, 3), 1, "only version 2 has a kernel"),
        ({}, (1, 20, 3), 2, "name a landmark that is not among the 20"),
        ({"left_rotation_idx": -1}, (1, 21, 3), 2, "name a landmark that is not among the 21"),
        ({"subset_idxs": []}, (1, 21, 3), 2, "subset_idxs is not a list of indices"),
        ({"scale_x": 0.0}, (1, 21, 3), 2, "must be above 0"),
        ({"scale_y": "1"}, (1, 21, 3), 2, "option scale_y is '1', not a number"),
        ({}, (2, 21, 3), 2, r"landmarks of shape \[2, 21, 3\] are not \[1, L, 3\]"),
    ],
)
def test_wrong_options_and_landmarks_are_refused(changed, shape, version, text):
    b = Builder()
    x = b.input(np.float32, shape)
    made = custom(b, "Landmarks2TransformMatrix", [x], (1, 4, 4), CROP | changed, version)
    with pytest.raises(ModelError, match=text):
        Interpreter(model_content=b.write([made])).allocate_tensors()


def test_wrong_shapes_of_matrix_and_image_are_refused():
    def refused(name: str, shapes: list[tuple[int, ...]], options: dict[str, Any] | None, text: str) -> None:
        b = Builder()
        made = custom(b, name, [b.input(np.float32, shape) for shape in shapes], (1, 1), options)
        with pytest.raises(ModelError, match=text):
            Interpreter(model_content=b.write([made])).allocate_tensors()

    matrix, image = (1, 4, 4), (1, 6, 5, 3)
    refused("TransformTensorBilinear", [image, (1, 3, 4)], SIZE, r"a matrix of shape \[1, 3, 4\]")
    refused(
        "TransformTensorBilinear", [(2, *image[1:]), matrix], SIZE, r"5x4 pixels of an image of shape \[2"
    )
    refused("TransformTensorBilinear", [image, matrix], {**SIZE, "output_width": 0}, "5x0 pixels")
    refused("TransformLandmarks", [(1, 7, 4), matrix], None, r"are not \[1, L, 2\] or \[1, L, 3\]")
