"""STABLEHLO_ADD, _MULTIPLY, _MAXIMUM, _MINIMUM, _AND and _SHIFT_LEFT against LiteRT's kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.errors import UnsupportedOperatorError
from runtime.interpreter import Interpreter
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, one_operator
from tests.runtime.ops.cases import Case, case, check, ours, random
from tests.runtime.ops.every_type import PLAIN
from tests.runtime.ops.operands import flags, whole

ARITHMETIC = (Op.STABLEHLO_ADD, Op.STABLEHLO_MULTIPLY, Op.STABLEHLO_MAXIMUM, Op.STABLEHLO_MINIMUM)
INTEGERS = (np.int8, np.int16, np.int32, np.int64)


def of_integers(opcode, dtype, resolver="BUILTIN_REF") -> Case:
    """All values of the type, so that sums and products wrap."""
    info = np.iinfo(dtype)
    x = np.array([info.min, -7, -1, 0, 1, 5, info.max], dtype)
    args = [Arg(x), whole(7, dtype=dtype)]
    return case(f"{opcode.name}_{dtype.__name__}", opcode, args, [Out(dtype)], resolver=resolver)


CASES = [
    *(case(f"{o.name}_float", o, [random(3, 4), random(3, 4, seed=1)]) for o in ARITHMETIC),
    *(of_integers(o, dtype) for o in ARITHMETIC for dtype in INTEGERS),
    *(case(f"{o.name}_bool", o, [flags(9), flags(9, seed=6)], [Out(np.bool_)]) for o in ARITHMETIC),
    *(of_integers(Op.STABLEHLO_AND, dtype, PLAIN) for dtype in INTEGERS),
    case(
        "STABLEHLO_AND_bool", Op.STABLEHLO_AND, [flags(9), flags(9, seed=6)], [Out(np.bool_)], resolver=PLAIN
    ),
    *(
        case(
            f"STABLEHLO_SHIFT_LEFT_{dtype.__name__}",
            Op.STABLEHLO_SHIFT_LEFT,
            [whole(9, dtype=dtype), whole(9, dtype=dtype, low=0, high=7)],
            [Out(dtype)],
            resolver=PLAIN,
        )
        for dtype in INTEGERS[:3]
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operands_of_one_shape_match_litert(case, backend):
    check(case, backend)


@pytest.mark.parametrize("opcode", [Op.STABLEHLO_MAXIMUM, Op.STABLEHLO_MINIMUM], ids=lambda o: o.name)
def test_the_first_operand_stays_where_one_is_not_a_number(opcode):
    x, z = np.array([np.nan, 1, np.nan], np.float32), np.array([1, np.nan, np.nan], np.float32)
    np.testing.assert_array_equal(ours(one_operator(opcode, [Arg(x), Arg(z)]), x, z), x)


def test_int64_is_shifted_which_litert_lacks():
    x, z = np.array([1, -3, 5, 1 << 40]), np.array([0, 2, 62, 3])
    model = one_operator(Op.STABLEHLO_SHIFT_LEFT, [Arg(x), Arg(z)], [Out(np.int64)])
    assert ours(model, x, z).tolist() == [1, -12, 1 << 62, 1 << 43]


def test_operands_of_two_types_are_refused():
    model = one_operator(Op.STABLEHLO_ADD, [random(3), whole(3)])
    with pytest.raises(UnsupportedOperatorError, match="input 1 has type INT32"):
        Interpreter(model_content=model).allocate_tensors()
