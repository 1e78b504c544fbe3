"""GATHER against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.errors import InvocationError
from runtime.interpreter import Interpreter
from runtime.model.schema import BuiltinOperator
from tests.runtime.models import Arg, const, one_operator
from tests.runtime.ops.cases import case, check, random

GATHER = BuiltinOperator.GATHER

CASES = [
    case("rows", GATHER, [random(7, 4), const([3, 0, 6, 6], np.int32)]),
    case(
        "columns_fed", GATHER, [random(3, 7), Arg(np.array([[1, 5], [0, 2]], np.int32))], options={"axis": 1}
    ),
    case("last_axis", GATHER, [random(2, 3, 7), const([6, 1], np.int64)], options={"axis": -1}),
    case("scalar_index", GATHER, [random(5, 4), const(2, np.int32)]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gather_matches_litert(case, backend):
    check(case, backend)


@pytest.mark.parametrize("index", [-1, 7])
def test_an_index_outside_the_axis_is_an_error(index):
    model = one_operator(GATHER, [random(7, 4), Arg(np.zeros(1, np.int32))])
    interpreter = Interpreter(model_content=model)
    interpreter.allocate_tensors()
    interpreter.set_tensor(1, np.array([index], np.int32))
    with pytest.raises(InvocationError, match="outside the axis of 7"):
        interpreter.invoke()
