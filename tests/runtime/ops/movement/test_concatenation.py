"""Joining and splitting against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.errors import ShapeError, UnsupportedOperatorError
from runtime.interpreter import Interpreter
from runtime.model.schema import BuiltinOperator
from tests.runtime.models import Out, const, one_operator, per_tensor
from tests.runtime.ops.cases import Case, case, check, constant, levels, random

CONCATENATION, PACK, SPLIT = BuiltinOperator.CONCATENATION, BuiltinOperator.PACK, BuiltinOperator.SPLIT
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
    case("split", SPLIT, [const(1, np.int32), random(2, 6, 3)], [Out()] * 3, {"num_splits": 3}),
    case("split_channels", SPLIT, [const(-1, np.int32), random(1, 4, 5, 8)], [Out()] * 2, {"num_splits": 2}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_concatenation_matches_litert(case, backend):
    check(case, backend)


def test_shapes_that_do_not_join_are_refused():
    model = one_operator(CONCATENATION, [random(2, 3), random(3, 3)], options={"axis": 1})
    with pytest.raises(ShapeError, match="do not join along axis 1"):
        Interpreter(model_content=model).allocate_tensors()


def test_int8_of_different_scales_is_refused():
    args = [levels(2, 3, quantization=Q), levels(2, 3, quantization=per_tensor(0.2, 3))]
    model = one_operator(CONCATENATION, args, [Out(np.int8, Q)], {"axis": 1})
    with pytest.raises(UnsupportedOperatorError, match="differ in scale"):
        Interpreter(model_content=model).allocate_tensors()
