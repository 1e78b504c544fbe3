"""Reductions against LiteRT's reference kernels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import ShapeError
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, const, one_operator, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check, levels, random
from tests.runtime.ops.operands import axis, flags, whole


def reduction(name, opcode, shape, axes, keep=False) -> Case:
    args = [random(*shape), const(axes, np.int32)]
    return case(name, Op[opcode], args, options={"keep_dims": keep})


def reduction_int8(name, opcode, shape, axes, q_in, q_out, keep=False) -> Case:
    args = [levels(*shape, quantization=per_tensor(*q_in)), const(axes, np.int32)]
    out = Out(np.int8, per_tensor(*q_out))
    return case(name, Op[opcode], args, [out], {"keep_dims": keep}, version=2)


CASES = [
    reduction("mean_image", "MEAN", (2, 7, 6, 5), [1, 2]),
    reduction("mean_image_keep", "MEAN", (1, 14, 14, 96), [1, 2], keep=True),
    reduction("mean_negative_axis", "MEAN", (2, 3, 40), [-1]),
    reduction("mean_all", "MEAN", (2, 3, 4), [0, 1, 2]),
    reduction("mean_repeated", "MEAN", (2, 3, 4), [1, 1, -2], keep=True),
    reduction("sum_rows", "SUM", (3, 4, 5), [0]),
    reduction("sum_last_keep", "SUM", (3, 4, 5), [2], keep=True),
    reduction("max_image", "REDUCE_MAX", (2, 7, 6, 5), [1, 2]),
    reduction("scattered_mean", "MEAN", (2, 7, 6, 5), [0, 2]),
    reduction("scattered_with_channels", "SUM", (2, 7, 6, 255), [1, 3], keep=True),
    reduction("scattered_maximum", "REDUCE_MAX", (2, 3, 4, 3, 2, 19), [0, 2, 4]),
    reduction("scattered_minimum", "REDUCE_MIN", (2, 3, 4, 3, 2, 5), [1, 3, 5]),
    reduction("first_and_last", "MEAN", (4, 3, 33), [0, 2]),
    reduction("last_of_one_dropped", "SUM", (2, 3, 1), [2]),
    reduction("last_of_one_and_another", "MEAN", (4, 3, 1), [0, -1]),
    reduction("last_of_one_kept", "REDUCE_PROD", (4, 3, 1), [0], keep=True),
    reduction("all_of_ones", "SUM", (1, 1, 1), [0, 1, 2]),
    reduction("none", "MEAN", (2, 3, 7), np.zeros(0)),
    reduction("ranges_of_pixels", "MEAN", (2, 37, 31, 20), [1, 2], keep=True),
    reduction("ranges_of_all", "SUM", (1, 41, 29, 7), [0, 1, 2, 3]),
    reduction("ranges_of_some", "REDUCE_MAX", (2, 3, 700, 6), [0, 2]),
    reduction("min_last", "REDUCE_MIN", (2, 7, 6, 5), [3], keep=True),
    reduction_int8("mean_int8", "MEAN", (1, 7, 7, 40), [1, 2], (0.05, 3), (0.021, -17)),
    reduction_int8("mean_int8_keep", "MEAN", (2, 5, 3, 9), [1, 2], (0.05, -128), (0.1, 0), keep=True),
    reduction_int8("mean_int8_equal", "MEAN", (1, 4, 4, 64), [1, 2], (0.05, 3), (0.05, 3)),
    reduction_int8("mean_int8_last", "MEAN", (2, 3, 50), [2], (0.05, 3), (0.01, 30)),
    reduction_int8("mean_int8_rows", "MEAN", (2, 37, 768), [-1], (0.05, -7), (0.001, 30)),
    reduction_int8("mean_int8_all", "MEAN", (2, 3, 50), [0, 1, 2], (0.05, 3), (0.001, 30), keep=True),
    reduction_int8("max_int8", "REDUCE_MAX", (2, 5, 9), [1], (0.05, 3), (0.05, 3)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reduction_matches_litert(case, backend):
    check(case, backend)


def test_an_axis_outside_the_rank_is_refused():
    model = one_operator(Op.MEAN, [random(2, 3), const([2], np.int32)])
    with pytest.raises(ShapeError, match="axis 2 is outside rank 2"):
        Interpreter(model_content=model).allocate_tensors()


def over_axis(opcode: Op, axis: int, options: dict[str, object] | None = None) -> Case:
    return case(f"{opcode.name} {axis}", opcode, [random(2, 3, 4), const([axis], np.int32)], options=options)


EDGE_CASES = [
    *(over_axis(op, axis) for op in (Op.MEAN, Op.SUM, Op.REDUCE_MAX) for axis in (-1, -3)),
    case("SUM of none", Op.SUM, [random(2, 0), const([1], np.int32)]),
    case("MEAN of all", Op.MEAN, [random(2, 3), const([0, 1], np.int32)]),
]  # fmt: skip


@pytest.mark.parametrize("case", EDGE_CASES, ids=str)
def test_empty_and_scalar_operands_and_negative_axes_match_litert(case):
    check(case, CPU)


KEPT_DIMENSIONS = [
    case(
        f"{op.name} {axes} {keep}", op, [random(2, 3, 4), const(axes, np.int32)], options={"keep_dims": keep}
    )
    for op, axes, keep in itertools.product(
        (Op.MEAN, Op.SUM, Op.REDUCE_MIN), ([0], [0, 2], [1, 1], [0, 1, 2]), (False, True)
    )
]


@pytest.mark.parametrize("case", KEPT_DIMENSIONS, ids=str)
def test_kept_dimensions_and_repeated_axes_match_litert(case):
    check(case, CPU)


BOOL = (Out(np.bool_),)


def of_integers(opcode: Op, dtype: type, axes: tuple[int, ...]) -> Case:
    """Numbers of the whole type, so that sums and products wrap around."""
    info = np.iinfo(dtype)
    values = np.random.default_rng(3).integers(info.min, info.max, (4, 3, 2, 21), dtype, endpoint=True)
    name = f"{opcode.name}_{dtype.__name__}_{axes}"
    return case(name, opcode, [Arg(values), axis(*axes)], [Out(dtype)], {"keep_dims": False})


def of_flags(opcode: Op, axes: tuple[int, ...]) -> Case:
    """Rows of flags of which most are alike, so that both results occur."""
    rare = np.random.default_rng(3).integers(0, 9, (4, 3, 2, 21)) == 0
    values = rare if opcode in (Op.REDUCE_ANY, Op.SUM, Op.REDUCE_MAX) else ~rare
    return case(f"{opcode.name}_bool_{axes}", opcode, [Arg(values), axis(*axes)], BOOL, {"keep_dims": True})


MORE_CASES = [
    case("REDUCE_PROD", Op.REDUCE_PROD, [random(2, 3, 4), axis(0, 2)], options={"keep_dims": False}),
    case("REDUCE_ANY", Op.REDUCE_ANY, [flags(4, 5, 2), axis(1)], BOOL, {"keep_dims": True}),
    case("REDUCE_ALL", Op.REDUCE_ALL, [flags(4, 5, 2), axis(1)], BOOL, {"keep_dims": False}),
    case("MEAN_int32", Op.MEAN, [whole(4, 5), axis(0)], (Out(np.int32),), {"keep_dims": False}),
    case(
        "SUM_int8",
        Op.SUM,
        [whole(4, 5, dtype=np.int8, quantization=per_tensor(0.1, 3)), axis(0)],
        (Out(np.int8, per_tensor(0.2, -7)),),
        {"keep_dims": False},
        # The reference resolver's int8 sums are whatever the memory held before.
        resolver="BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    ),
    *(
        of_integers(op, dtype, axes)
        for op in (Op.SUM, Op.REDUCE_MAX, Op.REDUCE_MIN, Op.REDUCE_PROD, Op.MEAN)
        for dtype in (np.int32, np.int64)
        for axes in ((0,), (1, 3), (3,))
    ),
    *(of_flags(op, axes) for op in (Op.REDUCE_ANY, Op.REDUCE_ALL) for axes in ((0, 2), (1, 3))),
    *(of_flags(op, (2,)) for op in (Op.SUM, Op.REDUCE_PROD, Op.REDUCE_MAX, Op.REDUCE_MIN)),
]


@pytest.mark.parametrize("case", MORE_CASES, ids=str)
def test_reductions_of_integers_and_flags_match_litert(case, backend):
    check(case, backend)
