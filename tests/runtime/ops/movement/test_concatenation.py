"""CONCATENATION and PACK against LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import ShapeError, UnsupportedOperatorError
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, one_operator, per_tensor
from tests.runtime.ops.cases import (
    CPU,
    Case,
    case,
    check,
    check_bits,
    constant,
    inside,
    levels,
    patterns,
    random,
)
from tests.runtime.ops.every_type import every_type, moves_as_litert, several

CONCATENATION, PACK, SPLIT = Op.CONCATENATION, Op.PACK, Op.SPLIT
Q = per_tensor(0.1, 3)


def concatenation(name, shapes, axis) -> Case:
    args = [random(*s, seed=i) for i, s in enumerate(shapes)]
    return case(name, CONCATENATION, args, options={"axis": axis})


CASES = [
    concatenation("channels", [(2, 3, 4, 5), (2, 3, 4, 7)], 3),
    concatenation("channels_of_4", [(1, 3, 4, 8), (1, 3, 4, 4), (1, 3, 4, 12)], -1),
    concatenation("rows", [(1, 2, 5, 3), (1, 4, 5, 3)], 1),
    concatenation("vectors", [(3,), (4,), (1,)], 0),
    case("with_constant", CONCATENATION, [random(2, 3), constant(random(2, 2, seed=1))], options={"axis": 1}),
    case("int8", CONCATENATION, [levels(2, 3, quantization=Q), levels(2, 4, seed=1, quantization=Q)],
         [Out(np.int8, Q)], {"axis": 1}, version=2),
    case("pack_front", PACK, [random(2, 3), random(2, 3, seed=1)], options={"axis": 0, "values_count": 2}),
    case("pack_back", PACK, [random(2, 3), random(2, 3, seed=1)], options={"axis": -1, "values_count": 2}),
    case("pack_scalars", PACK, [random(), random(seed=1)], options={"axis": 0, "values_count": 2}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_concatenation_matches_litert(case, backend):
    check(case, backend)


def pack(axis: int, count: int, *shape: int) -> Case:
    args = [patterns(*shape, seed=i) for i in range(count)]
    return case(f"pack_{shape}_{axis}", PACK, args, options={"axis": axis, "values_count": count})


PACKED = [
    pack(0, 3),
    pack(0, 1, 2, 3),
    pack(-1, 4, 7),
    pack(1, 3, 4, 5),
    pack(-2, 2, 3, 16),
    pack(-1, 2, 2, 3, 255),
    pack(2, 3, 2, 1, 3, 5),
    pack(1, 2, 2, 3, 1, 4, 7),
    pack(5, 3, 2, 3, 1, 4, 1),
]


def joined(axis: int, *shapes: Sequence[int], fixed: int = -1) -> Case:
    """Part `fixed` is constant."""
    args = [patterns(*shape, seed=i) for i, shape in enumerate(shapes)]
    args = [constant(arg) if i == fixed else arg for i, arg in enumerate(args)]
    return case(f"joined_{shapes}_{axis}_{fixed}", CONCATENATION, args, options={"axis": axis})


def packed_constant(axis: int, *shape: int) -> Case:
    args = [patterns(*shape), constant(patterns(*shape, seed=1)), patterns(*shape, seed=2)]
    return case(f"constant_{shape}_{axis}", PACK, args, options={"axis": axis, "values_count": 3})


PACKED += [
    joined(0, (3,), (4,), fixed=0),
    joined(-1, (2, 3, 5), (2, 3, 16), (2, 3, 7), fixed=1),
    joined(1, (2, 1, 255), (2, 3, 255), fixed=0),
    joined(-2, (2, 3, 1, 4, 7), (2, 3, 1, 2, 7)),
    joined(2, (2, 3, 1, 4, 2, 16), (2, 3, 2, 4, 2, 16), fixed=1),
    joined(5, (2, 1, 3, 1, 2, 1), (2, 1, 3, 1, 2, 3)),
    packed_constant(0, 4),
    packed_constant(1, 3, 5),
    packed_constant(-1, 2, 3, 7),
]


@pytest.mark.parametrize("case", [*PACKED, *map(inside, PACKED)], ids=str)
def test_joined_tensors_have_the_bits_of_litert(case, backend):
    check_bits(case, backend)


def test_shapes_that_do_not_join_are_refused():
    model = one_operator(CONCATENATION, [random(2, 3), random(3, 3)], options={"axis": 1})
    with pytest.raises(ShapeError, match="do not join along axis 1"):
        Interpreter(model_content=model).allocate_tensors()


def test_int8_of_different_scales_is_refused():
    args = [levels(2, 3, quantization=Q), levels(2, 3, quantization=per_tensor(0.2, 3))]
    model = one_operator(CONCATENATION, args, [Out(np.int8, Q)], {"axis": 1})
    with pytest.raises(UnsupportedOperatorError, match="differ in scale"):
        Interpreter(model_content=model).allocate_tensors()


MOVEMENTS = [
    several("middle", Op.CONCATENATION, [(2, 3, 4), (2, 1, 4), (2, 5, 4)], axis=1),
    several("last", Op.CONCATENATION, [(2, 3), (2, 4)], axis=-1),
    several("one", Op.CONCATENATION, [(2, 3)], axis=0),
    several("with_empty", Op.CONCATENATION, [(2, 3), (0, 3)], axis=0),
    several("front", Op.PACK, [(3, 4)] * 3, values_count=3, axis=0),
    several("behind", Op.PACK, [(3, 4)] * 2, values_count=2, axis=-1),
    several("scalars", Op.PACK, [()] * 3, values_count=3, axis=0),
]  # fmt: skip


@every_type(MOVEMENTS)
def test_every_type_moves_as_litert_does(movement):
    moves_as_litert(movement)


EDGE_CASES = [
    case("CONCATENATION -1", Op.CONCATENATION, [random(2, 3), random(2, 5)], options={"axis": -1}),
    case("PACK -1", Op.PACK, [random(2, 3), random(2, 3, seed=1)], options={"axis": -1, "values_count": 2}),
    case("CONCATENATION", Op.CONCATENATION, [random(0, 3), random(2, 3)], options={"axis": 0}),
    case("PACK of scalars", Op.PACK, [random(), random(seed=1)], options={"axis": 0, "values_count": 2}),
]  # fmt: skip


@pytest.mark.parametrize("case", EDGE_CASES, ids=str)
def test_empty_and_scalar_operands_and_negative_axes_match_litert(case):
    check(case, CPU)


U = per_tensor(0.02, 130)
RESCALED = [
    case(
        "concatenation_rescaled",
        Op.CONCATENATION,
        [
            Arg(np.arange(256, dtype=np.uint8).reshape(2, 128), per_tensor(0.013, 97)),
            Arg(np.arange(256, dtype=np.uint8).reshape(2, 128), U),
            Arg(np.arange(256, dtype=np.uint8).reshape(2, 128), per_tensor(0.031, 3)),
        ],
        [Out(np.uint8, U)],
        {"axis": 1},
    ),
    case(
        "concatenation_int16",
        Op.CONCATENATION,
        [Arg(np.arange(9, dtype=np.int16).reshape(3, 3), per_tensor(s)) for s in (0.1, 0.2)],
        [Out(np.int16, per_tensor(0.1))],
        {"axis": 0},
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", RESCALED, ids=str)
def test_levels_of_other_scales_are_rescaled_as_litert_does(case):
    check(case, CPU)
