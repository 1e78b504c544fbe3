"""Floored division, powers and angles against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import InvocationError
from runtime.model.schema import BuiltinOperator as Op
from tests.oracle import run_litert
from tests.runtime.models import Arg, Out, const, one_operator
from tests.runtime.ops.cases import CPU, Case, case, check, constant, random, run_ours
from tests.runtime.ops.operands import whole


def by_constants(opcode: Op, dtype: type, *divisors: int) -> Case:
    """Numbers at the bounds of the type and around zero."""
    info = np.iinfo(dtype)
    values = np.array([[info.min], [info.min + 1], [-8], [-7], [-1], [0], [1], [7], [8], [info.max]], dtype)
    name = f"{opcode.name}_{dtype.__name__}_by_{len(divisors)}"
    return case(name, opcode, [Arg(values), const(divisors, dtype)], [Out(dtype)])


CASES = [
    case("FLOOR_DIV_float", Op.FLOOR_DIV, [random(4, 5), random(5, seed=1)]),
    case("FLOOR_DIV_int32", Op.FLOOR_DIV, [whole(4, 5), whole(5, low=1)], (Out(np.int32),)),
    case("FLOOR_MOD_float", Op.FLOOR_MOD, [random(4, 5), random(5, seed=1)]),
    case("FLOOR_MOD_int64", Op.FLOOR_MOD, [whole(4, 5, dtype=np.int64), whole(5, dtype=np.int64, high=-1)],
         (Out(np.int64),)),
    case("POW", Op.POW, [random(4, 5, low=0.1), random(5, seed=1)]),
    case("POW_int32", Op.POW, [whole(4, 5, low=-5, high=6), whole(5, low=0, high=6)], (Out(np.int32),)),
    case("ATAN2", Op.ATAN2, [random(4, 5), random(4, 5, seed=1)]),
    case("FLOOR_DIV_constant", Op.FLOOR_DIV, [random(4, 3, 7), constant(random(7, seed=1, low=0.1))]),
    case("FLOOR_MOD_batch", Op.FLOOR_MOD, [random(3, 1, 5), random(3, 2, 1, seed=1)]),
    case("POW_broadcast", Op.POW, [random(2, 1, 5, low=0.1), random(2, 4, 1, seed=1)]),
    *(
        case(f"POW_{exponent}", Op.POW, [random(4, 9), const(np.float32(exponent))])
        for exponent in (0, 1, 2, 5, 3.000001, 12, -2)
    ),
    case("POW_root", Op.POW, [random(4, 9, low=0.1), const(np.float32([0.5]))]),
    case("POW_fed", Op.POW, [random(4, 9), Arg(np.float32([3]))]),
    case("POW_overflow", Op.POW, [random(4, 9, high=1e20), const(np.float32(4))]),
    by_constants(Op.FLOOR_DIV, np.int32, 1, -1, 2, -2, 7),
    by_constants(Op.FLOOR_MOD, np.int32, 1, 2, -2, 7, -3),
    by_constants(Op.FLOOR_MOD, np.int64, 1, 2, -2, 7, 2**40),
    by_constants(Op.POW, np.int32, 0, 1, 2, 3, 31, 30, 40),
    case("FLOOR_DIV_one_divisor", Op.FLOOR_DIV, [whole(3, 2, 5), const(-4, np.int32)], (Out(np.int32),)),
    *(
        case(f"POW_int32_{n}", Op.POW, [whole(4, 19), const(n, np.int32)], (Out(np.int32),))
        for n in (0, 1, 2, 13)
    ),
    case("POW_of_one_base", Op.POW, [const(np.float32(2)), random(4, 9)]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_division_matches_litert(case, backend):
    check(case, backend)


@pytest.mark.parametrize("opcode", [Op.DIV, Op.FLOOR_DIV, Op.FLOOR_MOD], ids=lambda o: o.name)
def test_the_least_number_by_minus_one_wraps_around_which_ends_litert(opcode, gpu):
    """A processor's quotient of these two is an exception, which LiteRT's process does not survive."""
    least = np.array([-(2**31), 7], np.int32)
    model = one_operator(opcode, [Arg(least), const(-1, np.int32)], [Out(np.int32)])
    expected = [0, 0] if opcode is Op.FLOOR_MOD else [-(2**31), -7]
    for backend in (CPU, gpu):
        assert run_ours(Case("least", model, (least,)), backend)[0].tolist() == expected


ENDED = [
    (Op.DIV, np.int32([[5, 3, -7]]), 0, "division by zero"),
    (Op.FLOOR_DIV, np.int32([[5, 3, -7]]), 0, "division by zero"),
    (Op.FLOOR_DIV, np.float32([[5.5, 3, -7]]), 0, "division by zero"),
    (Op.FLOOR_MOD, np.int64([[5, 3, -7]]), 0, "division by zero"),
    (Op.POW, np.int32([[5, 3, 7]]), -1, "an integer to a negative power"),
]


@pytest.mark.parametrize(("opcode", "right", "wrong", "message"), ENDED, ids=lambda v: getattr(v, "name", ""))
def test_an_operand_that_litert_does_not_take_ends_the_run_and_the_next_is_right(
    opcode, right, wrong, message, backend
):
    """The wrong one stands last: behind it lie lanes without a channel, which are all zero."""
    x, bad = np.array([[7], [-9]], right.dtype), right.copy()
    bad[0, -1] = wrong
    model = one_operator(opcode, [Arg(x), Arg(right)], [Out(right.dtype)])
    delegates = [] if backend.delegate is None else [backend.delegate]
    interpreter = Interpreter(model_content=model, experimental_delegates=delegates)
    interpreter.allocate_tensors()
    assert interpreter.delegation is None or not interpreter.delegation.fallbacks
    first, second = (details["index"] for details in interpreter.get_input_details())
    interpreter.set_tensor(first, x)
    interpreter.set_tensor(second, bad)
    with pytest.raises(InvocationError, match=f"operator 0 {opcode.name}: {message}"):
        interpreter.invoke()
    interpreter.set_tensor(second, right)
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    np.testing.assert_array_equal(found, run_litert(model, (x, right))[0])
