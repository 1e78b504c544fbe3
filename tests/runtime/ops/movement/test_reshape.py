"""Reshaping operators against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.errors import ShapeError
from runtime.interpreter import Interpreter
from runtime.model.schema import BuiltinOperator, TensorType
from tests.runtime.models import Arg, Out, const, one_operator
from tests.runtime.ops.cases import CPU, case, check, random

RESHAPE = BuiltinOperator.RESHAPE
INTEGERS = np.arange(24, dtype=np.int32).reshape(2, 3, 4)

CASES = [
    case("reshape_tensor", RESHAPE, [random(2, 3, 4), const([4, 6], np.int32)]),
    case("reshape_unknown", RESHAPE, [random(2, 3, 4), const([2, -1], np.int32)]),
    case("reshape_option", RESHAPE, [random(2, 3, 4)], options={"new_shape": (12, 2)}),
    case("reshape_int32", RESHAPE, [Arg(INTEGERS), const([24], np.int32)], [Out(np.int32)]),
    case("squeeze_all", BuiltinOperator.SQUEEZE, [random(1, 3, 1, 4)]),
    case("squeeze_some", BuiltinOperator.SQUEEZE, [random(1, 3, 1, 4)], options={"squeeze_dims": (-2,)}),
    case("expand_dims_front", BuiltinOperator.EXPAND_DIMS, [random(3, 4), const(0, np.int32)]),
    case("expand_dims_back", BuiltinOperator.EXPAND_DIMS, [random(3, 4), const([-1], np.int32)]),
    case("shape", BuiltinOperator.SHAPE, [random(3, 4, 5)], [Out(np.int32)],
         {"out_type": TensorType.INT32}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reshape_matches_litert(case, backend):
    check(case, backend)


@pytest.mark.parametrize("shape", [[5, 5], [-1, -1], [7, -1]], ids=str)
def test_a_shape_that_does_not_fit_is_refused(shape):
    model = one_operator(RESHAPE, [random(2, 3, 4), const(shape, np.int32)])
    with pytest.raises(ShapeError, match="operator 0 RESHAPE"):
        Interpreter(model_content=model).allocate_tensors()


def test_a_shape_may_be_computed_at_run_time():
    x, shape = random(2, 3), Arg(np.array([3, -1], np.int32))
    check(case("computed", RESHAPE, [x, shape]), CPU)
