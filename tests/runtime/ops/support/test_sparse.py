"""Sparse constants: what is stored comes to its place, and what does not fit is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from runtime.errors import ShapeError
from runtime.model.graph import SparseDimension, Sparsity, Tensor
from runtime.model.schema import TensorType
from runtime.ops.support.sparse import dense_values
from tests.runtime.ops.movement.sparse_matrices import block_sparse

ROWS = Sparsity((0, 1), (), (SparseDimension(2), SparseDimension(0, (0, 1, 3), (2, 0, 1))))
VALUES = np.array([7, 8, 9], np.float32)


def tensor(values: np.ndarray, sparsity: Sparsity | None, *shape: int) -> Tensor:
    data = memoryview(values.tobytes())
    return Tensor(0, "w", TensorType.FLOAT32, shape, data=data, sparsity=sparsity)


def test_compressed_rows_are_placed_by_their_columns():
    found = dense_values(tensor(VALUES, ROWS, 2, 3), np.dtype(np.float32))
    assert found.tolist() == [[0, 0, 7], [8, 9, 0]]


def test_an_outer_order_of_columns_is_followed():
    columns = replace(ROWS, traversal_order=(1, 0))
    found = dense_values(tensor(VALUES, columns, 3, 2), np.dtype(np.float32))
    assert found.tolist() == [[0, 8], [0, 9], [7, 0]]


@pytest.mark.parametrize("block", [(1, 1), (1, 4), (4, 1), (2, 4)], ids=str)
@pytest.mark.parametrize("density", [0.0, 0.4, 1.0])
def test_blocks_are_placed_whole(block, density):
    stored = block_sparse((8, 16), block, np.float32, density, seed=3)
    found = dense_values(tensor(stored.values, stored.sparsity, 8, 16), np.dtype(np.float32))
    np.testing.assert_array_equal(found, stored.dense)


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (tensor(VALUES, None, 2, 3), "no stored elements"),
        (tensor(VALUES, ROWS), "no stored elements"),
        (tensor(VALUES[:2], ROWS, 2, 3), "2 stored elements where its dimensions have 3"),
        (tensor(VALUES, ROWS, 2, 2), r"outside the shape \[2, 2\]"),
        (tensor(VALUES, ROWS, 1 << 20, 1 << 10), "12 bytes for a shape of"),
        (tensor(VALUES.view(np.uint8)[:5], ROWS, 2, 3), "5 bytes for a shape of"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_does_not_fit_is_refused_by_name(broken, text):
    with pytest.raises(ShapeError, match=f"sparse tensor 'w': .*{text}"):
        dense_values(broken, np.dtype(np.float32))
