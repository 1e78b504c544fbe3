"""Decodes sparse constants as `SparsityParameters` in schema.fbs describes them (TACO's formats, blocked).

The stored dimensions go from the outside in, each dense or compressed; the innermost ones are the inside of a
block. Reference: `kernels/internal/utils/sparsity_format_converter.cc`.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.errors import ShapeError
from runtime.model.graph import Sparsity, Tensor

_Array = NDArray[Any]
_MAX_BYTES = 2 << 30
"""Largest dense form in bytes. Chosen as `context.MAX_TENSOR_BYTES`: a small file may declare any shape."""


def dense_values(tensor: Tensor, dtype: np.dtype[Any]) -> _Array:
    """Return the dense form of a sparse constant, an array of `dtype` in the tensor's shape.

    Raises `ShapeError` where the stored elements do not fit the shape, or the dense form exceeds 2 GiB.
    """
    sparsity, size = tensor.sparsity, math.prod(tensor.shape)
    if tensor.data is None or sparsity is None or not tensor.shape:
        raise _error(tensor, "no stored elements")
    if len(tensor.data) % dtype.itemsize or size * dtype.itemsize > _MAX_BYTES:
        raise _error(tensor, f"{len(tensor.data)} bytes for a shape of {list(tensor.shape)}")
    values = np.frombuffer(tensor.data, dtype.newbyteorder("<"))
    dense = np.zeros(size, dtype)
    dense[_places(tensor, sparsity, _coordinates(tensor, sparsity, values.size))] = values
    return dense.reshape(tensor.shape)


def _error(tensor: Tensor, text: str) -> ShapeError:
    return ShapeError(f"sparse tensor {tensor.name!r}: {text}")


def _block_sizes(sparsity: Sparsity, rank: int) -> list[int]:
    """Return how many elements of each dimension of the tensor a block spans."""
    sizes = [1] * rank
    for place, block in zip(sparsity.traversal_order[rank:], sparsity.dimensions[rank:], strict=True):
        sizes[sparsity.block_map[place - rank]] *= block.dense_size
    return sizes


def _coordinates(tensor: Tensor, sparsity: Sparsity, count: int) -> list[_Array]:
    """Return, for each stored dimension, the index along it of every stored element.

    Raises `ShapeError` where the dimensions describe another number of elements than `count`.
    """
    found: list[_Array] = []
    # Dense dimensions multiply without any bytes in the file: more entries than a later compressed dimension
    # or the values account for are an error, and are refused before arrays of that size are made.
    most = max([count, *(len(dimension.segments or ()) for dimension in sparsity.dimensions)])
    parents = 1
    for dimension in sparsity.dimensions:
        if dimension.segments is None or dimension.indices is None:
            parents *= dimension.dense_size
            if not 0 <= parents <= most:
                break
            repeats: int | _Array = dimension.dense_size
            here = np.tile(np.arange(dimension.dense_size), parents // max(1, dimension.dense_size))
        else:
            repeats = np.diff(np.asarray(dimension.segments, np.int64))
            here = np.asarray(dimension.indices, np.int64)
            parents = len(here)
        found = [np.repeat(outer, repeats) for outer in found] + [here]
    if parents != count:
        raise _error(tensor, f"{count} stored elements where its dimensions have {parents}")
    return found


def _places(tensor: Tensor, sparsity: Sparsity, coordinates: list[_Array]) -> _Array:
    """Return the position of every stored element in the flat dense tensor."""
    shape, rank = tensor.shape, len(tensor.shape)
    sizes = _block_sizes(sparsity, rank)
    indices = [np.zeros_like(coordinates[0]) for _ in shape]
    for place, here in zip(sparsity.traversal_order, coordinates, strict=True):
        if place < rank:
            # A dimension of the tensor counts blocks, a block's own dimension the elements inside of one.
            indices[place] += here * sizes[place]
        else:
            indices[sparsity.block_map[place - rank]] += here
    for index, extent in zip(indices, shape, strict=True):
        if index.size and not 0 <= int(index.min()) <= int(index.max()) < extent:
            raise _error(tensor, f"a stored element lies outside the shape {list(shape)}")
    return np.asarray(np.ravel_multi_index(tuple(indices), shape))
