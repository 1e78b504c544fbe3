"""Random block-sparse matrices, as files keep them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runtime.model.graph import Quantization, SparseDimension, Sparsity
from tests.runtime.models import Builder


@dataclass(frozen=True)
class Stored:
    """A dense matrix, and how a file keeps it."""

    dense: np.ndarray
    sparsity: Sparsity
    values: np.ndarray


def block_sparse(
    shape: Sequence[int], block: Sequence[int], dtype: type, density: float, seed: int, most: int = 127
) -> Stored:
    """Rows of blocks kept where they hold anything; dense rows, compressed columns, dense blocks inside.

    The first block is always kept.
    """
    rng = np.random.default_rng(seed)
    rows, columns = shape[0] // block[0], shape[1] // block[1]
    kept = rng.random((rows, columns)) < density
    kept[0, 0] = True
    blocks = rng.integers(-most, most, (rows, columns, *block)) * kept[..., None, None]
    dense = blocks.transpose(0, 2, 1, 3).reshape(shape).astype(dtype)
    segments = (0, *np.cumsum(kept.sum(axis=1)).tolist())
    indices = tuple(np.nonzero(kept)[1].tolist())
    levels = [SparseDimension(rows), SparseDimension(0, segments, indices)]
    order, block_map = [0, 1], []
    for axis, size in enumerate(block):
        if size > 1:
            order.append(len(order))
            block_map.append(axis)
            levels.append(SparseDimension(size))
    values = blocks[kept].astype(dtype)
    return Stored(dense, Sparsity(tuple(order), tuple(block_map), tuple(levels)), values)


def sparse_constant(builder: Builder, stored: Stored, quantization: Quantization | None = None) -> int:
    data = memoryview(stored.values.tobytes())
    dense = stored.dense
    return builder.tensor(dense.dtype, dense.shape, quantization, data=data, sparsity=stored.sparsity)
