"""SLICE and STRIDED_SLICE against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import ShapeError
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, const, one_operator
from tests.runtime.ops.cases import CPU, Case, case, check, check_bits, constant, inside, patterns, random
from tests.runtime.ops.every_type import PLAIN, Movement, every_type, fed, ints, moves_as_litert, unary
from tests.runtime.ops.operands import whole

SLICE, STRIDED = Op.SLICE, Op.STRIDED_SLICE


def box(name, shape, begin, size) -> Case:
    return case(name, SLICE, [random(*shape), const(begin, np.int32), const(size, np.int32)])


def strided(name, shape, begin, end, strides, version=1, **masks) -> Case:
    args = [random(*shape), *(const(v, np.int32) for v in (begin, end, strides))]
    return case(name, STRIDED, args, options=masks, version=version)


CASES = [
    box("slice_middle", (4, 5, 6), [1, 0, 2], [2, 5, 3]),
    box("slice_to_end", (4, 5, 6), [1, 2, 0], [-1, -1, 4]),
    box("slice_image", (1, 7, 8, 4), [0, 2, 3, 0], [1, 4, 5, 4]),
    strided("plain", (4, 5, 6), [1, 0, 2], [3, 5, 6], [1, 1, 1]),
    strided("steps", (7, 9), [0, 1], [7, 9], [3, 2]),
    strided("negative_begin", (7, 9), [-4, -8], [-1, -2], [1, 1]),
    strided("backwards", (7, 9), [6, 8], [0, 2], [-2, -3]),
    strided("backwards_masked", (7, 9), [0, 0], [0, 0], [-1, -1], begin_mask=3, end_mask=3),
    strided("begin_and_end_masks", (4, 5, 6), [1, 1, 1], [2, 2, 2], [1, 1, 1], begin_mask=1, end_mask=4),
    strided("shrink", (4, 5, 6), [2, 0, -1], [3, 5, 0], [1, 1, 1], shrink_axis_mask=5),
    strided("shrink_all", (3,), [1], [2], [1], shrink_axis_mask=1),
    strided("beyond_the_end", (4, 5), [1, 2], [100, 100], [1, 2]),
    strided("new_axis", (4, 5), [0, 1, 0], [0, 3, 5], [1, 1, 1], new_axis_mask=1),
    strided("ellipsis", (3, 4, 5, 6), [1, 0, 2], [3, 0, 5], [1, 1, 1], ellipsis_mask=2),
    strided("fewer_entries", (3, 4, 5), [1], [3], [1]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_slice_matches_litert(case, backend):
    check(case, backend)


def moved(shape, begin, end, strides, **masks) -> Case:
    args = [patterns(*shape), *(const(v, np.int32) for v in (begin, end, strides))]
    return case(f"strided_{shape}", STRIDED, args, options=masks)


MOVED = [
    moved((9,), [-1], [-10], [-2]),
    moved((4, 40), [0, 3], [4, 36], [1, 1]),
    moved((4, 40), [1, 16], [4, 32], [2, 1]),
    moved((4, 5, 6), [0, 1, 2], [0, 3, 3], [1, 1, 1], new_axis_mask=1, shrink_axis_mask=4),
    moved((3, 4, 7), [2, 1, 5], [3, 2, 6], [1, 1, 1], shrink_axis_mask=7),
    moved((2, 3, 4, 255), [1, 2, 0, 254], [0, 0, 4, 0], [-1, -1, 3, -5]),
    moved((2, 3, 4, 5, 3), [0, 1, 0, 4, 0], [2, 3, 4, 0, 3], [1, 1, 2, -2, 1]),
]
WHOLE = [
    box("channels", (3, 4, 40), [1, 0, 16], [2, 4, 16]),
    box("five", (2, 3, 4, 5, 7), [1, 0, 1, 2, 3], [1, -1, 2, 3, 4]),
]


@pytest.mark.parametrize("case", [*MOVED, *map(inside, [*MOVED, *WHOLE])], ids=str)
def test_sliced_tensors_have_the_bits_of_litert(case, backend):
    check_bits(case, backend)


def test_a_slice_outside_the_input_is_refused():
    model = one_operator(SLICE, [random(4), const([3], np.int32), const([2], np.int32)])
    with pytest.raises(ShapeError, match="leave shape"):
        Interpreter(model_content=model).allocate_tensors()


def test_a_stride_of_zero_is_refused():
    args = [random(4), *(const([v], np.int32) for v in (0, 4, 0))]
    with pytest.raises(ShapeError, match="a stride of 0"):
        Interpreter(model_content=one_operator(STRIDED, args)).allocate_tensors()


MOVEMENTS = [
    unary("box", Op.SLICE, (4, 5, 6), ints([1, 0, 2]), ints([2, 5, -1])),
    unary("int64", Op.SLICE, (4, 5), ints([1, 2], np.int64), ints([3, 2], np.int64)),
    unary("computed_begin", Op.SLICE, (4, 5), fed([1, 2]), ints([3, 2])),
    unary("computed", Op.SLICE, (4, 5), fed([1, 2]), fed([3, -1])),
    unary("five", Op.SLICE, (2, 3, 2, 3, 2), ints([0, 1, 0, 1, 0]), ints([2, 2, 1, 2, 2])),
    unary("steps", Op.STRIDED_SLICE, (7, 9), ints([0, 1]), ints([7, 9]), ints([3, 2])),
    unary("backwards", Op.STRIDED_SLICE, (7, 9), ints([6, 8]), ints([0, 2]), ints([-2, -3])),
    unary(
        "masks", Op.STRIDED_SLICE, (4, 5, 6), *(ints(v) for v in ([1, 1, 1], [2, 2, 2], [1, 2, 1])),
        begin_mask=1, end_mask=4, shrink_axis_mask=2,
    ),
    unary("computed", Op.STRIDED_SLICE, (7, 9), fed([1, 0]), fed([5, 9]), ints([1, 2])),
    unary(
        "offset", Op.STRIDED_SLICE, (7, 9), ints([-6, 2]), ints([3, 4]), ints([1, 1]),
        offset=True, version=8, resolver=PLAIN,
    ),
    unary("empty", Op.STRIDED_SLICE, (7, 9), ints([5, 0]), ints([2, 9]), ints([1, 1])),
    Movement(
        "clamped", Op.DYNAMIC_UPDATE_SLICE,
        lambda v: ([v.arg(5, 6), v.arg(2, 3), fed([4, -1])], [v.out()], {}),
    ),
    Movement(
        "int64", Op.DYNAMIC_UPDATE_SLICE,
        lambda v: ([v.arg(3, 4, 5), v.arg(1, 2, 5), fed([1, 1, 0], np.int64)], [v.out()], {}),
    ),
]  # fmt: skip


@every_type(MOVEMENTS)
def test_every_type_moves_as_litert_does(movement):
    moves_as_litert(movement)


def updated(name: str, x: Arg, box: Arg, starts: Arg) -> Case:
    return case(f"update_{name}", Op.DYNAMIC_UPDATE_SLICE, [x, box, starts], [Out(x.value.dtype)])


UPDATES = [
    updated("rows", random(5, 33), random(2, 33), fed([3, 0])),
    updated("before", random(5, 33), random(2, 3), fed([-7, -1])),
    updated("behind", random(5, 33), random(2, 3), fed([7, 99], np.int64)),
    updated("list", random(9), random(4), fed([2])),
    updated("constant", random(4, 5, 6), constant(random(2, 1, 6)), const([1, 2, 0], np.int32)),
    updated("cache", constant(random(1, 8, 2, 16)), random(1, 1, 2, 16), fed([0, 5, 0, 0])),
    updated("rank_6", random(2, 1, 3, 2, 3, 5), random(1, 1, 2, 2, 1, 3), fed([1, 0, 0, 0, 2, 1])),
    updated("whole", random(3, 7), random(3, 7), fed([0, 0])),
    updated("int64", whole(4, 5, dtype=np.int64), whole(2, 2, dtype=np.int64, seed=9), fed([1, 3])),
]


@pytest.mark.parametrize("case", UPDATES, ids=str)
def test_an_update_of_a_box_matches_litert(case, backend):
    check(case, backend)


def sliced(name: str, start: list[int], stop: list[int], steps: list[int], **masks: int) -> Case:
    bounds = [const(values, np.int32) for values in (start, stop, steps)]
    options = {f"{key}_mask": value for key, value in masks.items()}
    return case(name, Op.STRIDED_SLICE, [random(4, 5, 6), *bounds], options=options)


STRIDED_SLICES = [
    sliced("plain", [1, 0, 2], [3, 4, 6], [1, 2, 3]),
    sliced("begin mask", [3, 3, 3], [4, 5, 6], [1, 1, 1], begin=0b011),
    sliced("end mask", [1, 1, 1], [0, 0, 0], [1, 1, 2], end=0b111),
    sliced("negative strides with masks", [0, -1, -2], [0, 0, 1], [-1, -2, -1], begin=0b001, end=0b011),
    sliced("negative bounds", [-3, -4, -100], [-1, 100, -1], [1, 1, 1]),
    sliced("shrink", [-1, 2, 0], [0, 3, 6], [1, 1, 1], shrink_axis=0b011),
    sliced("ellipsis", [1, 0, 1], [3, 0, 5], [1, 1, 2], ellipsis=0b010),
    sliced("ellipsis in front", [0, 1], [0, 4], [1, 1], ellipsis=0b01),
    sliced("new axis", [0, 1, 0], [0, 3, 4], [1, 1, 1], new_axis=0b001),
    sliced("new axis after an ellipsis", [0, 0, 1], [0, 0, 4], [1, 1, 1], ellipsis=0b001, new_axis=0b010),
    sliced("nothing left", [2, 0, 0], [2, 5, 6], [1, 1, 1]),
]


@pytest.mark.parametrize("case", STRIDED_SLICES, ids=str)
def test_masks_of_strided_slices_match_litert(case):
    check(case, CPU)
