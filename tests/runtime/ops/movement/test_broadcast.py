"""TILE and BROADCAST_TO against LiteRT's reference kernels; STABLEHLO_BROADCAST_IN_DIM, which it lacks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import ShapeError
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, const, one_operator
from tests.runtime.ops.cases import CPU, Case, case, check, check_bits, inside, patterns, random, run_ours
from tests.runtime.ops.every_type import every_type, fed, ints, moves_as_litert, unary

MOVEMENTS = [
    unary("plain", Op.TILE, (2, 3), ints([2, 3])),
    unary("computed_int64", Op.TILE, (2, 1, 3), fed([1, 4, 2], np.int64)),
    unary("none", Op.TILE, (2, 3), ints([0, 3])),
    unary("matrix", Op.BROADCAST_TO, (3, 1), ints([2, 3, 4]), version=2),
    unary("eight", Op.BROADCAST_TO, (1, 2, 1), ints([2, 1, 1, 2, 1, 3, 2, 2], np.int64), version=2),
    unary("computed", Op.BROADCAST_TO, (4,), fed([3, 4]), version=2),
]  # fmt: skip


@every_type(MOVEMENTS)
def test_every_type_moves_as_litert_does(movement):
    moves_as_litert(movement)


def tile(multiples: Sequence[int], *shape: int) -> Case:
    return case(f"tile_{shape}", Op.TILE, [patterns(*shape), const(multiples, np.int32)])


def broadcast(target: Sequence[int], *shape: int) -> Case:
    args = [patterns(*shape), const(target, np.int64)]
    return case(f"broadcast_{shape}", Op.BROADCAST_TO, args, version=2)


MOVED = [
    tile([4], 5),
    tile([2, 1], 3, 255),
    tile([1, 1, 1], 2, 3, 7),
    tile([1, 2, 3, 2], 2, 3, 1, 5),
    tile([3, 1, 1, 4], 1, 2, 3, 16),
    tile([2, 1, 3, 1, 2], 1, 2, 1, 3, 7),
    tile([1, 2, 1, 2, 1, 3], 2, 1, 3, 2, 2, 3),
    broadcast([7], 1),
    broadcast([3, 5]),
    broadcast([4, 3, 255], 3, 1),
    broadcast([4, 3, 255], 255),
    broadcast([2, 3, 4, 5], 2, 1, 4, 1),
    broadcast([3, 2, 3, 4, 16], 2, 1, 1, 16),
    broadcast([2, 3, 2, 1, 3, 7], 1, 3, 1, 1, 3, 7),
]


@pytest.mark.parametrize("case", [*MOVED, *map(inside, MOVED)], ids=str)
def test_repeated_tensors_have_the_bits_of_litert(case, backend):
    check_bits(case, backend)


EDGE_CASES = [
    case("TILE", Op.TILE, [random(2, 3), const([0, 2], np.int32)]),
]  # fmt: skip


@pytest.mark.parametrize("case", EDGE_CASES, ids=str)
def test_empty_and_scalar_operands_and_negative_axes_match_litert(case):
    check(case, CPU)


def in_dim(x: Arg, places: Sequence[int], target: Sequence[int]) -> Case:
    """Dimension i of x becomes dimension places[i] of the target."""
    out = Out(x.value.dtype, shape=tuple(target))
    options = {"broadcast_dimensions": np.array(places, np.int64)}
    model = one_operator(Op.STABLEHLO_BROADCAST_IN_DIM, [x], [out], options)
    return Case(f"in_dim_{target}", model, (x.value,))


@pytest.mark.parametrize(
    ("shape", "places", "target"),
    [
        ((), (), (3, 5)),
        ((7,), (0,), (7, 3)),
        ((7,), (1,), (3, 7, 2)),
        ((3, 255), (0, 2), (3, 4, 255)),
        ((3, 5), (1, 0), (5, 3)),
        ((1, 5), (2, 0), (5, 3, 4)),
        ((2, 1, 3, 17), (0, 2, 3, 5), (2, 2, 4, 3, 1, 17)),
    ],
    ids=str,
)
def test_dimensions_get_the_places_that_are_given(shape, places, target, backend):
    x = patterns(*shape)
    spread = np.einsum(
        x.value.view(np.uint32), range(len(shape)), sorted(range(len(shape)), key=lambda i: places[i])
    )
    ones = np.ones(len(target), int)
    ones[sorted(places)] = spread.shape
    (found,) = run_ours(in_dim(x, places, target), backend)
    np.testing.assert_array_equal(found.view(np.uint32), np.broadcast_to(spread.reshape(ones), target))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.bool_])
def test_dimensions_of_every_type_get_their_places(dtype, backend):
    x = Arg(np.arange(6).reshape(2, 3).astype(dtype))
    (found,) = run_ours(in_dim(x, (0, 2), (2, 5, 3)), backend)
    np.testing.assert_array_equal(found, np.broadcast_to(x.value[:, None], (2, 5, 3)))


@pytest.mark.parametrize(
    ("places", "target"), [((0,), (2, 3)), ((0, 2), (2, 3)), ((1, 1), (3, 3)), ((0, 1), (2, 4))]
)
def test_dimensions_that_do_not_fit_their_places_are_refused(places, target):
    with pytest.raises(ShapeError, match=r"shape \[2, 3\] does not broadcast to"):
        Interpreter(model_content=in_dim(random(2, 3), places, target).model).allocate_tensors()
