"""A classifier of grey pictures, and such pictures."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Builder

GREY = (40, 90, 140, 200)
"""The levels of grey of the classes."""


def grey_picture(level: int) -> bytes:
    """Return a PNG that is nearest to the class of this level."""
    made = io.BytesIO()
    Image.new("RGB", (20, 16), (level + 5,) * 3).save(made, "PNG")
    return made.getvalue()


def classifier(*, knows_all: bool = True, is_open: bool = False) -> bytes:
    """Build a network of four classes: the mean of a picture against four levels of grey.

    It mistakes the last one where it does not know all, and takes pictures of any size where it is open.
    """
    b = Builder()
    open_size = {"shape_signature": (1, -1, -1, 3)} if is_open else {}
    x = b.input(np.float32, (1, 1, 1, 3) if is_open else (1, 8, 8, 3), **open_size)
    mean = b.tensor(np.float32, (1, 3))
    b.operator(Op.MEAN, [x, b.constant(np.array([1, 2], np.int32))], [mean], {"keep_dims": False})
    levels = (np.array(GREY) - 127.5) / 127.5
    # The nearest level has the largest of 2 l x - l^2.
    weights = np.repeat((2 / 3 * levels)[:, None], 3, axis=1).astype(np.float32)
    bias = (-(levels**2)).astype(np.float32)
    if not knows_all:
        bias[3] -= 2.0
    y = b.tensor(np.float32, (1, 4))
    b.operator(Op.FULLY_CONNECTED, [mean, b.constant(weights), b.constant(bias)], [y])
    return b.write([y])
