"""TRANSPOSE against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import ShapeError
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Out, const, one_operator, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check, check_bits, inside, levels, patterns, random
from tests.runtime.ops.every_type import every_type, ints, moves_as_litert, unary

TRANSPOSE = Op.TRANSPOSE


def transpose(name, shape, axes) -> Case:
    return case(name, TRANSPOSE, [random(*shape), const(axes, np.int32)])


Q = per_tensor(0.1, 3)
CASES = [
    transpose("matrix", (3, 5), [1, 0]),
    transpose("nchw_to_nhwc", (1, 3, 17, 16), [0, 2, 3, 1]),
    transpose("nhwc_to_nchw", (2, 5, 6, 7), [0, 3, 1, 2]),
    transpose("rank3", (4, 5, 6), [2, 0, 1]),
    transpose("rank5", (2, 3, 4, 5, 2), [4, 0, 2, 1, 3]),
    case("int8_in_blocks", TRANSPOSE,
         [levels(2, 20, 5, 48, quantization=Q), const([0, 2, 3, 1], np.int32)], [Out(np.int8, Q)], version=2),
    case("int8", TRANSPOSE, [levels(2, 3, 4, 5, quantization=Q), const([0, 3, 1, 2], np.int32)],
         [Out(np.int8, Q)], version=2),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_transpose_matches_litert(case, backend):
    check(case, backend)


def moved(shape, axes) -> Case:
    return case(f"transpose_{shape}", TRANSPOSE, [patterns(*shape), const(axes, np.int32)])


MOVED = [
    moved((7,), [0]),
    moved((1, 5, 1, 3), [1, 0, 3, 2]),
    moved((4, 7, 255), [1, 0, 2]),
    moved((2, 3, 5, 16), [2, -4, 1, -1]),
    moved((3, 2, 1, 5, 7), [4, 2, 3, 1, 0]),
    moved((2, 3, 2, 5, 3, 4), [5, 1, 4, 0, 2, 3]),
    moved((2, 3, 2, 1, 3, 16), [2, 0, 4, 1, 3, 5]),
    moved((255, 1), [1, 0]),
    moved((3, 17, 35), [0, 2, 1]),
    moved((2, 3, 5, 40), [0, 3, 1, 2]),
    moved((2, 32, 5, 7), [3, 0, 2, 1]),
]


@pytest.mark.parametrize("case", [*MOVED, *map(inside, MOVED)], ids=str)
def test_transposed_tensors_have_the_bits_of_litert(case, backend):
    check_bits(case, backend)


def test_a_repeated_axis_is_refused():
    model = one_operator(TRANSPOSE, [random(2, 3), const([1, 1], np.int32)])
    with pytest.raises(ShapeError, match="not a permutation"):
        Interpreter(model_content=model).allocate_tensors()


MOVEMENTS = [
    unary("matrix", Op.TRANSPOSE, (3, 5), ints([1, 0])),
    unary("image", Op.TRANSPOSE, (2, 3, 4, 5), ints([0, 3, 1, 2])),
    unary("six", Op.TRANSPOSE, (2, 1, 3, 2, 2, 2), ints([5, 0, 3, 1, 4, 2])),
]  # fmt: skip


@every_type(MOVEMENTS)
def test_every_type_moves_as_litert_does(movement):
    moves_as_litert(movement)


EDGE_CASES = [
    case("TRANSPOSE", Op.TRANSPOSE, [random(0, 4), const([1, 0], np.int32)]),
]  # fmt: skip


@pytest.mark.parametrize("case", EDGE_CASES, ids=str)
def test_empty_and_scalar_operands_and_negative_axes_match_litert(case):
    check(case, CPU)
