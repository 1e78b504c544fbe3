"""Reshaping operators against LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import ShapeError
from runtime.model.graph import SparseDimension, Sparsity
from runtime.model.schema import ActivationFunctionType, BuiltinOperator
from runtime.model.schema import BuiltinOperator as Op
from tests.oracle import run_litert
from tests.runtime.models import Arg, Builder, Out, const, one_operator, per_tensor
from tests.runtime.ops.cases import (
    CPU,
    Case,
    case,
    check,
    check_bits,
    compare,
    inside,
    ours,
    patterns,
    random,
)
from tests.runtime.ops.every_type import every_type, ints, moves_as_litert, unary
from tests.runtime.ops.movement.sparse_matrices import Stored, block_sparse, sparse_constant

RESHAPE = Op.RESHAPE
INTEGERS = np.arange(24, dtype=np.int32).reshape(2, 3, 4)

CASES = [
    case("reshape_tensor", RESHAPE, [random(2, 3, 4), const([4, 6], np.int32)]),
    case("reshape_unknown", RESHAPE, [random(2, 3, 4), const([2, -1], np.int32)]),
    case("reshape_option", RESHAPE, [random(2, 3, 4)], options={"new_shape": (12, 2)}),
    case("reshape_int32", RESHAPE, [Arg(INTEGERS), const([24], np.int32)], [Out(np.int32)]),
    case("squeeze_all", Op.SQUEEZE, [random(1, 3, 1, 4)]),
    case("squeeze_some", Op.SQUEEZE, [random(1, 3, 1, 4)], options={"squeeze_dims": (-2,)}),
    case("expand_dims_front", Op.EXPAND_DIMS, [random(3, 4), const(0, np.int32)]),
    case("expand_dims_back", Op.EXPAND_DIMS, [random(3, 4), const([-1], np.int32)]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reshape_matches_litert(case, backend):
    check(case, backend)


def reshape(shape: Sequence[int], target: Sequence[int]) -> Case:
    return case(f"{shape}_to_{target}", RESHAPE, [patterns(*shape), const(target, np.int32)])


def squeeze(axes: Sequence[int], *shape: int) -> Case:
    options = {"squeeze_dims": tuple(axes)}
    return case(f"squeeze_{shape}_{axes}", Op.SQUEEZE, [patterns(*shape)], options=options)


def expand(axis: int, *shape: int) -> Case:
    return case(f"expand_{shape}_{axis}", Op.EXPAND_DIMS, [patterns(*shape), const(axis, np.int32)])


MOVED = [
    reshape((2, 3, 5, 7), (5, 42)),
    reshape((4, 255), (2, 3, 1, 85, 2)),
    reshape((2, 3, 2, 1, 3, 16), (3, 2, 1, 2, 1, 48)),
    squeeze([0, -2], 1, 5, 1, 7),
    squeeze([-1], 2, 3, 1),
    squeeze([2, 4], 2, 3, 1, 2, 1, 5),
    squeeze([0], 1),
    expand(0, 5),
    expand(-1, 2, 3, 7),
    expand(1, 3, 255),
    expand(-3, 2, 3, 1, 4, 5),
]


@pytest.mark.parametrize("case", [*MOVED, *map(inside, MOVED)], ids=str)
def test_reshaped_tensors_have_the_bits_of_litert(case, backend):
    check_bits(case, backend)


@pytest.mark.parametrize("shape", [[5, 5], [-1, -1], [7, -1]], ids=str)
def test_a_shape_that_does_not_fit_is_refused(shape):
    model = one_operator(RESHAPE, [random(2, 3, 4), const(shape, np.int32)])
    with pytest.raises(ShapeError, match="operator 0 RESHAPE"):
        Interpreter(model_content=model).allocate_tensors()


def test_a_shape_may_be_computed_at_run_time():
    x, shape = random(2, 3), Arg(np.array([3, -1], np.int32))
    check(case("computed", RESHAPE, [x, shape]), CPU)


MOVEMENTS = [
    unary("option", Op.RESHAPE, (2, 3, 4), new_shape=[4, -1]),
    unary("tensor", Op.RESHAPE, (2, 3, 4), ints([3, 2, 4])),
    unary("to_scalar", Op.RESHAPE, (1, 1), new_shape=[0]),
    unary("empty", Op.RESHAPE, (2, 0, 3), ints([3, 0])),
    unary("all", Op.SQUEEZE, (1, 3, 1, 2)),
    unary("listed", Op.SQUEEZE, (1, 3, 1, 2), squeeze_dims=[-2]),
    unary("front", Op.EXPAND_DIMS, (3, 2), ints(0)),
    unary("last", Op.EXPAND_DIMS, (3, 2), ints([-1])),
    unary("middle_int64", Op.EXPAND_DIMS, (3, 2), ints([1], np.int64)),
]  # fmt: skip


@every_type(MOVEMENTS)
def test_every_type_moves_as_litert_does(movement):
    moves_as_litert(movement)


EDGE_CASES = [
    case("EXPAND_DIMS -2", Op.EXPAND_DIMS, [random(2, 3), const(-2, np.int32)]),
    case("SQUEEZE -2", Op.SQUEEZE, [random(2, 1, 3)], options={"squeeze_dims": (-2,)}),
    case("RESHAPE", Op.RESHAPE, [random(0, 4), const([2, 0], np.int32)]),
    case("RESHAPE to a scalar", Op.RESHAPE, [random(1, 1), const(np.zeros(0), np.int32)]),
    case("EXPAND_DIMS of a scalar", Op.EXPAND_DIMS, [random(), const(0, np.int32)]),
]  # fmt: skip


@pytest.mark.parametrize("case", EDGE_CASES, ids=str)
def test_empty_and_scalar_operands_and_negative_axes_match_litert(case):
    check(case, CPU)


WORDS = np.arange(-12, 12, dtype=np.int32).reshape(2, 3, 4) * 70_000_001


def bitcast(name, values, dtype) -> Case:
    return case(name, Op.BITCAST, [Arg(values)], [Out(dtype)])


BITCASTS = [
    bitcast("same_width", WORDS, np.float32),
    bitcast("to_words", patterns(3, 5, 7).value, np.int32),
    bitcast("to_bytes", WORDS, np.uint8),
    bitcast("from_bytes", WORDS.view(np.uint8).reshape(2, 3, 4, 4), np.int32),
    bitcast("halves", WORDS, np.int16),
    bitcast("doubles", np.arange(6, dtype=np.int64).reshape(3, 2), np.float64),
]  # fmt: skip


@pytest.mark.parametrize("case", BITCASTS, ids=str)
def test_bits_are_read_as_litert_reads_them(case, backend):
    check(case, backend)


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
