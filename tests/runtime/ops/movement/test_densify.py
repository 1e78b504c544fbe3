"""DENSIFY and sparse weights against LiteRT's reference kernels, on random block-sparse matrices.

Sparse tensors are decoded: DENSIFY and sparse FULLY_CONNECTED give the dense result.
"""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import ShapeError
from runtime.model.graph import SparseDimension, Sparsity
from runtime.model.schema import ActivationFunctionType, BuiltinOperator
from tests.oracle import run_litert
from tests.runtime.models import Builder, per_tensor
from tests.runtime.ops.cases import compare, ours
from tests.runtime.ops.movement.sparse_matrices import Stored, block_sparse, sparse_constant


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


def test_a_delegate_takes_a_model_with_densify_whole(gpu):
    """It is computed when the model is read, so that no delegate has a kernel for it."""
    model = densified(block_sparse((8, 12), (1, 4), np.float32, 0.3, seed=1))
    report = Interpreter(model_content=model, experimental_delegates=[gpu.delegate]).delegation
    assert (report.status, report.delegated_ops, report.partitions) == ("full", 2, 1)


@pytest.mark.parametrize("block", [(1, 1), (1, 4), (4, 1), (2, 3)], ids=str)
@pytest.mark.parametrize("density", [0.3, 1.0])
def test_densify_matches_litert(block, density):
    stored = block_sparse((8, 12), block, np.float32, density, seed=sum(block))
    x = np.random.default_rng(9).uniform(-1, 1, stored.dense.shape).astype(np.float32)
    found = ours(densified(stored), x)
    np.testing.assert_array_equal(found, x + stored.dense)
    np.testing.assert_array_equal(found, run_litert(densified(stored), [x])[0])


@pytest.mark.parametrize("shape", [(8, 16), (33, 64)], ids=str)
def test_sparse_weights_of_a_dense_layer_match_litert(shape):
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
