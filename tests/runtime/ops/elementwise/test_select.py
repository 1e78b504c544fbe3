"""SELECT and SELECT_V2 against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import TensorType
from tests.runtime.models import Arg, Out, const
from tests.runtime.ops.cases import Case, case, check, check_bits, patterns, random
from tests.runtime.ops.every_type import Values
from tests.runtime.ops.operands import flags


def chosen(name: str, opcode: Op, kind: TensorType, *shapes: tuple[int, ...]) -> Case:
    """Build a condition and two values of one type, of the given shapes."""
    values = Values(kind, 9)
    args = [flags(*shapes[0]), *(values.arg(*shape) for shape in shapes[1:])]
    return case(f"{opcode.name}_{name}_{kind.name}", opcode, args, [Out(values.dtype)])


TYPES = (TensorType.INT32, TensorType.INT64, TensorType.BOOL)
NARROW = (TensorType.INT8, TensorType.UINT8, TensorType.INT16)

CASES = [
    case("SELECT", Op.SELECT, [flags(3, 4), random(3, 4), random(3, 4, seed=1)]),
    case("SELECT_rows", Op.SELECT, [flags(3), random(3, 4), random(3, 4, seed=1)]),
    case("SELECT_V2", Op.SELECT_V2, [flags(3, 1), random(4), random(2, 1, 4, seed=1)]),
    case("SELECT_of_one", Op.SELECT, [Arg(np.array(True)), random(3, 5), random(3, 5, seed=1)]),
    case("SELECT_rows_of_5", Op.SELECT, [flags(4), random(4, 2, 1, 3, 5), random(4, 2, 1, 3, 5, seed=1)]),
    case("SELECT_vector", Op.SELECT, [flags(19), random(19), random(19, seed=1)]),
    case("SELECT_V2_of_one", Op.SELECT_V2, [Arg(np.array(False)), random(3, 5), random(5, seed=1)]),
    case("SELECT_V2_rank_5", Op.SELECT_V2, [flags(2, 1, 3, 1, 7), random(4, 1, 1, 7), random(1, 3, 2, 1)]),
    case("SELECT_V2_masked", Op.SELECT_V2, [flags(1, 1, 9, 9), random(2, 3, 9, 9), const(-np.inf)]),
    *(chosen("broadcast", Op.SELECT_V2, kind, (3, 1), (4,), (2, 1, 4)) for kind in TYPES),
    *(chosen("same", Op.SELECT, kind, (5, 255), (5, 255), (5, 255)) for kind in TYPES[:2]),
    *(chosen("rows", Op.SELECT, kind, (5,), (5, 3), (5, 3)) for kind in TYPES[1:]),
    *(chosen("narrow", Op.SELECT_V2, kind, (1, 1, 5, 21), (), (2, 3, 5, 21)) for kind in NARROW),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_selection_matches_litert(case, backend):
    check(case, backend)


@pytest.mark.parametrize("opcode", [Op.SELECT, Op.SELECT_V2], ids=lambda o: o.name)
def test_selected_floats_keep_every_bit(opcode, backend):
    check_bits(case("bits", opcode, [flags(9, 21), patterns(9, 21), patterns(9, 21, seed=1)]), backend)
