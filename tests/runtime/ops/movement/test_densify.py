"""DENSIFY and sparse weights against LiteRT's reference kernels, on random block-sparse matrices.

Row 5 of the checklist: sparse tensors decoded, DENSIFY and sparse FULLY_CONNECTED give the dense result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from runtime.errors import ShapeError
from runtime.interpreter import Interpreter
from runtime.model.graph import Quantization, SparseDimension, Sparsity
from runtime.model.schema import ActivationFunctionType, BuiltinOperator
from tests.oracle import run_litert
from tests.runtime.models import Builder, per_tensor
from tests.runtime.ops.cases import compare


@dataclass(frozen=True)
class Stored:
    """A dense matrix, and how a file keeps it."""

    dense: np.ndarray
    sparsity: Sparsity
    values: np.ndarray


def block_sparse(
    shape: Sequence[int], block: Sequence[int], dtype: type, density: float, seed: int
) -> Stored:
    """Rows of blocks kept where they hold anything; dense rows, compressed columns, dense blocks inside."""
    rng = np.random.default_rng(seed)
    rows, columns = shape[0] // block[0], shape[1] // block[1]
    kept = rng.random((rows, columns)) < density
    blocks = rng.integers(-127, 127, (rows, columns, *block)) * kept[..., None, None]
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


def densified(stored: Stored) -> bytes:
    """x + densify(constant)."""
    builder = Builder()
    x = builder.input(stored.dense.dtype, stored.dense.shape)
    weights = sparse_constant(builder, stored)
    dense = builder.tensor(stored.dense.dtype, stored.dense.shape)
    total = builder.tensor(stored.dense.dtype, stored.dense.shape)
    builder.operator(BuiltinOperator.DENSIFY, [weights], [dense])
    none = {"fused_activation_function": ActivationFunctionType.NONE}
    builder.operator(BuiltinOperator.ADD, [x, dense], [total], none)
    return builder.write([total])


def sparse_dense_layer(stored: Stored) -> bytes:
    builder = Builder()
    x = builder.input(np.float32, (3, stored.dense.shape[1]))
    weights = sparse_constant(builder, stored)
    bias = builder.constant(np.linspace(-1, 1, stored.dense.shape[0]).astype(np.float32))
    y = builder.tensor(np.float32)
    options = {"fused_activation_function": ActivationFunctionType.RELU}
    builder.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, bias], [y], options, 8)
    return builder.write([y])


def ours(model: bytes, x: np.ndarray) -> np.ndarray:
    interpreter = Interpreter(model_content=model)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


@pytest.mark.parametrize("block", [(1, 1), (1, 4), (4, 1), (2, 3)], ids=str)
@pytest.mark.parametrize("density", [0.3, 1.0])
def test_row_5_densify_matches_litert(block, density):
    stored = block_sparse((8, 12), block, np.float32, density, seed=sum(block))
    x = np.random.default_rng(9).uniform(-1, 1, stored.dense.shape).astype(np.float32)
    found = ours(densified(stored), x)
    np.testing.assert_array_equal(found, x + stored.dense)
    np.testing.assert_array_equal(found, run_litert(densified(stored), [x])[0])


@pytest.mark.parametrize("shape", [(8, 16), (33, 64)], ids=str)
def test_row_5_sparse_weights_of_a_dense_layer_match_litert(shape):
    stored = block_sparse(shape, (1, 4), np.float32, 0.4, seed=shape[0])
    x = np.random.default_rng(1).uniform(-1, 1, (3, shape[1])).astype(np.float32)
    (expected,) = run_litert(sparse_dense_layer(stored), [x])
    compare(ours(sparse_dense_layer(stored), x), expected)


def test_densify_of_levels_keeps_them():
    stored = block_sparse((8, 32), (1, 16), np.int8, 0.5, seed=4)
    builder = Builder()
    weights = sparse_constant(builder, stored, per_tensor(0.1))
    dense = builder.tensor(np.int8, stored.dense.shape, per_tensor(0.1))
    builder.operator(BuiltinOperator.DENSIFY, [weights], [dense])
    interpreter = Interpreter(model_content=builder.write([dense]))
    interpreter.allocate_tensors()
    interpreter.invoke()
    np.testing.assert_array_equal(interpreter.get_tensor(dense), stored.dense)


def test_elements_outside_the_shape_are_refused():
    stored = block_sparse((8, 12), (1, 4), np.float32, 1.0, seed=0)
    rows, columns, inside = stored.sparsity.dimensions
    outside = SparseDimension(0, columns.segments, (*columns.indices[:-1], 3))
    hostile = Stored(
        stored.dense,
        Sparsity(stored.sparsity.traversal_order, stored.sparsity.block_map, (rows, outside, inside)),
        stored.values,
    )
    with pytest.raises(ShapeError, match="outside the shape"):
        ours(densified(hostile), stored.dense)
