"""Functions of one operand against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, one_operator
from tests.runtime.ops.cases import CPU, Case, case, check, random, run_ours


def unary(name, opcode, low=-3.0, dtype=np.float32) -> Case:
    values = random(3, 41, 7, low=low).value.astype(dtype)
    return case(name, Op[opcode], [Arg(values)], [Out(dtype)])


def bounds(dtype) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.array([[info.min, info.min + 1, -7, -1, 0, 1, 5, info.max]] * 3, dtype)


CASES = [
    unary("abs", "ABS"),
    unary("exp", "EXP"),
    unary("neg", "NEG"),
    *(
        case(f"{o.name}_bounds_{dtype.__name__}", o, [Arg(bounds(dtype))], [Out(dtype)])
        for o, dtype in ((Op.NEG, np.int32), (Op.NEG, np.int64), (Op.ABS, np.int32))
    ),
    unary("neg_int32", "NEG", dtype=np.int32),
    unary("rsqrt", "RSQRT", low=0.01),
    unary("sqrt", "SQRT", low=0.0),
    unary("square", "SQUARE"),
    *(case(o.name, o, [random(200, low=0.001, high=9.0)]) for o in (Op.LOG, Op.SIN, Op.COS)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_functions_match_litert(case, backend):
    check(case, backend)


def test_the_cube_root_which_litert_lacks(backend):
    x = np.append(np.linspace(-9, 9, 101), [0.0, -0.0, 1e-40, np.inf, -np.inf, np.nan]).astype(np.float32)
    case = Case("cube_root", one_operator(Op.STABLEHLO_CBRT, [Arg(x)], (Out(),)), (x,))
    (found,) = run_ours(case, backend)
    np.testing.assert_allclose(found, np.cbrt(x.astype(np.float64)), rtol=3e-7, atol=1e-7)
    np.testing.assert_array_equal(np.signbit(found[:-1]), np.signbit(x[:-1]))


ROUNDINGS = [
    *(case(o.name, o, [Arg(np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 3.2], np.float32))],
           resolver="BUILTIN")
      for o in (Op.FLOOR, Op.CEIL, Op.ROUND, Op.SIGN)),
    case("SIGN_int32", Op.SIGN, [Arg(np.array([[-(2**31)], [-7], [0], [5], [2**31 - 1]], np.int32))],
         [Out(np.int32)]),
]  # fmt: skip


@pytest.mark.parametrize("case", ROUNDINGS, ids=str)
def test_rounding_matches_litert(case, backend):
    check(case, backend)


def buckets(name, values, dtype, boundaries) -> Case:
    return case(
        name, Op.BUCKETIZE, [Arg(np.array(values, dtype))], [Out(np.int32)], {"boundaries": boundaries}
    )


BUCKETS = [
    buckets("float32", [-1, 0.5, 2, 2.5, 9, np.nan, np.inf], np.float32, [0.0, 2.0, 2.5]),
    buckets("float64", [-1, 0.1, 2, 2.5, 9], np.float64, [0.1, 2.0, 2.5]),
    buckets("int32", [-1, 2**24 + 1, 3], np.int32, [0.0, 2.0, 2.0**24]),
    buckets("int64", [-1, 2**40, 3], np.int64, [0.0, 2.0]),
    buckets("no_boundaries", [1, 2], np.float32, []),
]  # fmt: skip


@pytest.mark.parametrize("case", BUCKETS, ids=str)
def test_intervals_are_those_of_litert(case):
    check(case, CPU)
