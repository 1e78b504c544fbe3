"""SLICE and STRIDED_SLICE against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.errors import ShapeError
from runtime.interpreter import Interpreter
from runtime.model.schema import BuiltinOperator
from tests.runtime.models import const, one_operator
from tests.runtime.ops.cases import Case, case, check, random

SLICE, STRIDED = BuiltinOperator.SLICE, BuiltinOperator.STRIDED_SLICE


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


def test_a_slice_outside_the_input_is_refused():
    model = one_operator(SLICE, [random(4), const([3], np.int32), const([2], np.int32)])
    with pytest.raises(ShapeError, match="leave shape"):
        Interpreter(model_content=model).allocate_tensors()


def test_a_stride_of_zero_is_refused():
    args = [random(4), *(const([v], np.int32) for v in (0, 4, 0))]
    with pytest.raises(ShapeError, match="a stride of 0"):
        Interpreter(model_content=one_operator(STRIDED, args)).allocate_tensors()
