"""Filters of levels: whole or piece by piece, the product is that of the widened filter."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.ops.matmul.level_matrix import LevelMatrix
from tests.runtime.ops.contexts import context

SIZES = {"small": (5, 7), "kept at its largest": (256, 256), "in pieces": (37, 9001), "many rows": (3000, 40)}


@pytest.mark.parametrize("shape", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize(("dtype", "zero"), [(np.int8, 0), (np.uint8, 131)], ids=["int8", "uint8"])
@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_the_product_is_that_of_the_whole_matrix(shape, dtype, zero, real):
    rng, info = np.random.default_rng(1), np.iinfo(dtype)
    stored = rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)
    a = rng.integers(-3, 4, (4, shape[1])).astype(real)
    product = LevelMatrix(context(), stored, zero, real).product()
    for _ in range(2):
        found = np.empty((4, shape[0]), real)
        product(a, found)
        np.testing.assert_array_equal(found, a @ (stored.astype(np.int64) - zero).T)


@pytest.mark.parametrize("shape", SIZES.values(), ids=SIZES)
def test_pieces_are_all_channels_in_order(shape):
    stored = np.random.default_rng(2).integers(-128, 128, shape).astype(np.int8)
    parts = [
        (channels, columns.copy())
        for channels, columns in LevelMatrix(context(), stored, 0, np.float32).pieces()()
    ]
    assert [i for part, _ in parts for i in range(part.start, part.stop)] == list(range(shape[0]))
    np.testing.assert_array_equal(np.concatenate([columns for _, columns in parts], axis=1), stored.T)
