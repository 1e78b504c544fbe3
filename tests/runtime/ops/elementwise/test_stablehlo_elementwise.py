"""STABLEHLO_ADD, _MULTIPLY, _MAXIMUM, _MINIMUM, _AND and _SHIFT_LEFT against LiteRT's kernels.

REMAINDER and CLAMP, of which LiteRT has none for CPUs, are held to the StableHLO specification.
"""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import FarmRuntimeError, ShapeError, UnsupportedOperatorError
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, one_operator
from tests.runtime.ops.cases import Case, case, check, ours, random, run_ours
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


def run(opcode, args, backend, dtype=np.float32) -> np.ndarray:
    """Return the result of an operator that the delegate must take."""
    inputs = tuple(a.value for a in args if not a.constant)
    (found,) = run_ours(Case(opcode.name, one_operator(opcode, args, [Out(dtype)]), inputs), backend)
    return found


SPECIAL = np.float32([5.5, -5.5, 0.0, -0.0, 1e-40, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("shape", [(1,), (7, 3), (2, 3, 5), (2, 1, 3, 2, 2, 17), (3, 255)], ids=str)
def test_remainders_have_the_sign_of_the_dividend(shape, backend):
    x, z = random(*shape, low=-9.0, high=9.0), random(*shape, seed=1)
    np.testing.assert_array_equal(run(Op.STABLEHLO_REMAINDER, [x, z], backend), np.fmod(x.value, z.value))


def test_remainders_of_special_values(backend):
    x, z = (Arg(part.reshape(-1).copy()) for part in np.meshgrid(SPECIAL, SPECIAL))
    found = run(Op.STABLEHLO_REMAINDER, [x, z], backend)
    with np.errstate(invalid="ignore"):
        wanted = np.fmod(x.value, z.value)
    np.testing.assert_array_equal(found, wanted)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(wanted[numbers]))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_remainders_of_integers(dtype, backend):
    least = np.iinfo(dtype).min
    x, z = np.array([7, -7, 7, -7, least, least, 0], dtype), np.array([3, 3, -3, -3, -1, 10, 5], dtype)
    wanted = [1, -1, 1, -1, 0, -8, 0]
    assert run(Op.STABLEHLO_REMAINDER, [Arg(x), Arg(z)], backend, dtype).tolist() == wanted


def test_a_remainder_of_integers_by_zero_ends_the_run(backend):
    with pytest.raises(FarmRuntimeError, match="operator 0 STABLEHLO_REMAINDER: division by zero"):
        run(Op.STABLEHLO_REMAINDER, [whole(3), Arg(np.int32([1, 0, 2]))], backend, np.int32)


@pytest.mark.parametrize("constant", [False, True], ids=["computed", "constant"])
@pytest.mark.parametrize("shape", [(1,), (7, 3), (2, 3, 5), (2, 1, 3, 2, 2, 17), (3, 255)], ids=str)
def test_values_are_clamped_between_numbers_and_between_tensors(shape, constant, backend):
    x = random(*shape)
    for bounds in ((), shape):
        low = Arg(np.full(bounds, -1.25, np.float32), constant=constant)
        high = Arg(np.full(bounds, 0.75, np.float32), constant=constant)
        found = run(Op.STABLEHLO_CLAMP, [low, x, high], backend)
        np.testing.assert_array_equal(found, np.clip(x.value, -1.25, 0.75))


def test_clamping_keeps_what_is_not_a_number_and_gives_high_where_bounds_cross(backend):
    low, x, high = (part.reshape(-1).copy() for part in np.meshgrid(SPECIAL, SPECIAL, SPECIAL))
    found = run(Op.STABLEHLO_CLAMP, [Arg(low), Arg(x), Arg(high)], backend)
    np.testing.assert_array_equal(found, np.minimum(np.maximum(x, low), high))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers_are_clamped(dtype, backend):
    bounds = [Arg(np.array(n, dtype)) for n in (-2, 4)]
    x = Arg(np.arange(-9, 9, dtype=dtype))
    found = run(Op.STABLEHLO_CLAMP, [bounds[0], x, bounds[1]], backend, dtype)
    np.testing.assert_array_equal(found, np.clip(x.value, -2, 4))


def test_a_bound_of_another_shape_is_refused():
    model = one_operator(Op.STABLEHLO_CLAMP, [random(3), random(2, 3), random()])
    with pytest.raises(ShapeError, match="a bound of shape \\[3\\] for an operand of \\[2, 3\\]"):
        Interpreter(model_content=model).allocate_tensors()
