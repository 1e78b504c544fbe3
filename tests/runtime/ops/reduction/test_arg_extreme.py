"""ARG_MAX and ARG_MIN against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import TYPES, Arg, Builder, Out, const, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check, random
from tests.runtime.ops.operands import axis, flags, whole

Q = per_tensor(0.1, 4)
EDGE_CASES = [
    case("ARG_MAX -2", Op.ARG_MAX, [random(3, 4), const(-2, np.int32)], [Out(np.int64)],
         options={"output_type": 4}),
    case("ARG_MAX int8", Op.ARG_MAX, [whole(9, 21, dtype=np.int8, quantization=Q), const(-1, np.int32)],
         [Out(np.int64)], options={"output_type": 4}),
    case("ARG_MIN uint8", Op.ARG_MIN, [whole(9, 300, dtype=np.uint8, low=0, high=256, quantization=Q),
         const(1, np.int32)], [Out(np.int32)], options={"output_type": 2}),
]  # fmt: skip


@pytest.mark.parametrize("case", EDGE_CASES, ids=str)
def test_empty_and_scalar_operands_and_negative_axes_match_litert(case):
    check(case, CPU)


def extreme(name: str, opcode: Op, x: Arg, along: int, dtype: type = np.int32) -> Case:
    """Build a case with indices of 32 or 64 bits."""
    options = {"output_type": TYPES[np.dtype(dtype)]}
    return case(f"{opcode.name}_{name}", opcode, [x, axis(along)], [Out(dtype)], options)


def between(largest: Op) -> Case:
    """Along each axis of computed rows; the first result is chosen from again, in padded rows."""
    build = Builder()
    x = build.input(np.float32, (5, 21))
    signed = build.tensor(np.float32, (5, 21))
    build.operator(Op.NEG, [x], [signed])
    outs = []
    for along in (0, 1):
        found = build.tensor(np.int32, ((21,), (5,))[along])
        build.operator(largest, [signed, build.constant(np.int32([along]))], [found], {"output_type": 2})
        outs.append(found)
    last = build.tensor(np.int64)
    build.operator(largest, [outs[0], build.constant(np.int32([0]))], [last], {"output_type": 4})
    return Case(f"{largest.name}_between", build.write([outs[1], last]), (random(5, 21).value,))


CASES = [
    between(Op.ARG_MAX),
    between(Op.ARG_MIN),
    case("ARG_MAX", Op.ARG_MAX, [random(3, 5, 2), axis(1)], (Out(np.int64),), {"output_type": 4}),
    case("ARG_MIN_ties", Op.ARG_MIN, [whole(4, 9, low=0, high=3), axis(-1)], (Out(np.int32),),
         {"output_type": 2}),
    extreme("vector", Op.ARG_MAX, random(255), 0),
    extreme("channels", Op.ARG_MIN, random(2, 3, 17, 21), -1, np.int64),
    extreme("first_axis", Op.ARG_MAX, random(9, 5, 3), 0),
    extreme("long_axis_of_ties", Op.ARG_MAX, whole(3, 1000, low=0, high=5), 1),
    extreme("long_axis_between", Op.ARG_MIN, random(2, 300, 3, 21), 1, np.int64),
    extreme("rank_6", Op.ARG_MIN, random(2, 1, 3, 4, 2, 5), 3, np.int64),
    extreme("one", Op.ARG_MAX, random(4, 1), 1),
    extreme("zeros", Op.ARG_MAX, Arg(np.float32([[-0.0, 0.0], [0.0, -0.0]])), 1),
    extreme("infinities", Op.ARG_MIN, Arg(np.float32([[np.inf] * 3, [3, -np.inf, -np.inf]])), 1),
    extreme("nan", Op.ARG_MAX, Arg(np.float32([[np.nan, -3, 2], [1, np.nan, 2], [np.nan] * 3])), 1),
    extreme("nan", Op.ARG_MIN, Arg(np.float32([[np.nan, -3, 2], [1, np.nan, 0], [np.nan] * 3])), 1),
    extreme("int32", Op.ARG_MAX, whole(3, 40), 1, np.int64),
    extreme("bool", Op.ARG_MAX, flags(5, 7), 1),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_indices_of_extrema_match_litert(case, backend):
    check(case, backend)
