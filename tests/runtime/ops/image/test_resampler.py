"""Resampler by its definition: LiteRT itself has no such operator, only its GPU delegate and MediaPipe do."""

from __future__ import annotations

import math

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import ShapeError
from runtime.model.schema import BuiltinOperator
from tests.runtime.models import Builder
from tests.runtime.ops.cases import Case, compare, run_ours
from tests.runtime.ops.gpu_expectations import TAKES


def model(image, positions) -> bytes:
    b = Builder()
    inputs = [b.input(np.float32, image), b.input(np.float32, positions)]
    y = b.tensor(np.float32)
    b.operator(BuiltinOperator.CUSTOM, inputs, [y], custom_code="Resampler")
    return b.write([y])


def sampled(image, positions):
    """Apply the definition, pixel by pixel."""
    y = np.zeros(image.shape, np.float32)
    _, height, width, _ = image.shape

    def pixel(n, column, row):
        return image[n, row, column] if 0 <= column < width and 0 <= row < height else np.float32(0)

    for n, i, j in np.ndindex(image.shape[:3]):
        x, z = positions[n, i, j]
        if not (-1 < x < width and -1 < z < height):
            continue
        left, top = math.floor(x), math.floor(z)
        dx, dz = left + 1 - x, top + 1 - z
        y[n, i, j] = dx * dz * pixel(n, left, top) + (1 - dx) * (1 - dz) * pixel(n, left + 1, top + 1)
        y[n, i, j] += dx * (1 - dz) * pixel(n, left, top + 1) + (1 - dx) * dz * pixel(n, left + 1, top)
    return y


@pytest.mark.parametrize("shape", [(1, 4, 5, 3), (2, 7, 3, 16), (4, 3, 2, 255), (1, 1, 1, 1)], ids=str)
def test_an_image_is_read_between_its_pixels(shape, backend):
    """Positions reach two pixels beyond the image; some are whole numbers, its edges, or no numbers."""
    rng = np.random.default_rng(sum(shape))
    image = rng.standard_normal(shape).astype(np.float32)
    positions = rng.uniform(-2, max(shape[1:3]) + 2, (*shape[:3], 2)).astype(np.float32)
    flat = positions.reshape(-1)
    flat[::5] = np.resize(np.float32([0, -1, shape[2], shape[1], np.nan, np.inf, 1]), flat[::5].size)
    case = Case("", model(shape, positions.shape), (image, positions), refused=TAKES)
    (found,) = run_ours(case, backend)
    compare(found, sampled(image, positions))


def test_positions_of_another_shape_are_refused():
    with pytest.raises(ShapeError, match=r"positions of \[1, 4, 5, 3\] for an image of \[1, 4, 5, 3\]"):
        Interpreter(model_content=model((1, 4, 5, 3), (1, 4, 5, 3))).allocate_tensors()
