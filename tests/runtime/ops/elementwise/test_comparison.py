"""Comparisons, logic, selection, arg extrema, running sums, divisions, roundings against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.interpreter import Interpreter
from runtime.model.schema import BuiltinOperator as B
from tests.runtime.models import Arg, Out, one_operator, per_tensor
from tests.runtime.ops.cases import case, check, random

RNG = np.random.default_rng(5)


def whole(*shape, dtype=np.int32, low=-20, high=20, quantization=None) -> Arg:
    return Arg(RNG.integers(low, high, shape).astype(dtype), quantization)


def flags(*shape) -> Arg:
    return Arg(RNG.integers(0, 2, shape).astype(np.bool_))


def axis(*values) -> Arg:
    return Arg(np.array(values, np.int32), constant=True)


BOOL = (Out(np.bool_),)
COMPARISONS = [B.EQUAL, B.NOT_EQUAL, B.GREATER, B.GREATER_EQUAL, B.LESS, B.LESS_EQUAL]
SPECIAL = np.array([[0.0, -0.0, np.nan, np.inf, -np.inf, 1.5]], np.float32)

CASES = [
    *(case(f"{o.name}_float", o, [Arg(SPECIAL), Arg(SPECIAL.T.copy())], BOOL) for o in COMPARISONS),
    *(case(f"{o.name}_int32", o, [whole(2, 3, 4), whole(3, 1)], BOOL) for o in COMPARISONS),
    *(
        case(
            f"{o.name}_{dtype.__name__}",
            o,
            [
                whole(40, dtype=dtype, low=low, high=low + 256, quantization=per_tensor(0.11, low + 130)),
                whole(40, 1, dtype=dtype, low=low, high=low + 256, quantization=per_tensor(0.07, low + 100)),
            ],
            BOOL,
        )
        for o in COMPARISONS
        for dtype, low in ((np.int8, -128), (np.uint8, 0))
    ),
    case("EQUAL_bool", B.EQUAL, [flags(4, 5), flags(5)], BOOL),
    case("LOGICAL_AND", B.LOGICAL_AND, [flags(4, 5), flags(5)], BOOL),
    case("LOGICAL_OR", B.LOGICAL_OR, [flags(4, 5), flags(5)], BOOL),
    case("LOGICAL_NOT", B.LOGICAL_NOT, [flags(4, 5)], BOOL),
    case("BITWISE_XOR", B.BITWISE_XOR, [whole(3, 4), whole(4)], (Out(np.int32),)),
    case("RIGHT_SHIFT", B.RIGHT_SHIFT, [whole(3, 4), whole(4, low=0, high=40)], (Out(np.int32),)),
    case("SELECT", B.SELECT, [flags(3, 4), random(3, 4), random(3, 4, seed=1)]),
    case("SELECT_rows", B.SELECT, [flags(3), random(3, 4), random(3, 4, seed=1)]),
    case("SELECT_V2", B.SELECT_V2, [flags(3, 1), random(4), random(2, 1, 4, seed=1)]),
    case("ARG_MAX", B.ARG_MAX, [random(3, 5, 2), axis(1)], (Out(np.int64),), {"output_type": 4}),
    case("ARG_MIN_ties", B.ARG_MIN, [whole(4, 9, low=0, high=3), axis(-1)], (Out(np.int32),),
         {"output_type": 2}),
    *(
        case(
            f"CUMSUM_{exclusive}_{reverse}",
            B.CUMSUM,
            [random(3, 4, 2), axis(1)],
            options={"exclusive": exclusive, "reverse": reverse},
        )
        for exclusive in (False, True)
        for reverse in (False, True)
    ),
    case("FLOOR_DIV_float", B.FLOOR_DIV, [random(4, 5), random(5, seed=1)]),
    case("FLOOR_DIV_int32", B.FLOOR_DIV, [whole(4, 5), whole(5, low=1)], (Out(np.int32),)),
    case("FLOOR_MOD_float", B.FLOOR_MOD, [random(4, 5), random(5, seed=1)]),
    case("FLOOR_MOD_int64", B.FLOOR_MOD, [whole(4, 5, dtype=np.int64), whole(5, dtype=np.int64, high=-1)],
         (Out(np.int64),)),
    case("POW", B.POW, [random(4, 5, low=0.1), random(5, seed=1)]),
    case("POW_int32", B.POW, [whole(4, 5, low=-5, high=6), whole(5, low=0, high=6)], (Out(np.int32),)),
    case("ATAN2", B.ATAN2, [random(4, 5), random(4, 5, seed=1)]),
    *(case(o.name, o, [Arg(np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 3.2], np.float32))],
           resolver="BUILTIN")
      for o in (B.FLOOR, B.CEIL, B.ROUND, B.SIGN)),
    *(case(o.name, o, [random(200, low=0.001, high=9.0)]) for o in (B.LOG, B.SIN, B.COS)),
    case("L2_NORMALIZATION", B.L2_NORMALIZATION, [random(2, 3, 4, 5)]),
    case("LRN", B.LOCAL_RESPONSE_NORMALIZATION, [random(1, 3, 4, 9)],
         options={"radius": 2, "alpha": 0.3, "beta": 0.7, "bias": 1.1}),
    case("ADD_N", B.ADD_N, [random(3, 4), random(3, 4, seed=1), random(3, 4, seed=2)]),
    case("FAKE_QUANT", B.FAKE_QUANT, [random(300, low=-4, high=4)],
         options={"min": -1.3, "max": 2.9, "num_bits": 8, "narrow_range": False}),
    case("L2_POOL", B.L2_POOL_2D, [random(1, 7, 6, 3)],
         options={"padding": 0, "stride_w": 2, "stride_h": 1, "filter_width": 3, "filter_height": 2}),
    case("REDUCE_PROD", B.REDUCE_PROD, [random(2, 3, 4), axis(0, 2)], options={"keep_dims": False}),
    case("REDUCE_ANY", B.REDUCE_ANY, [flags(4, 5, 2), axis(1)], BOOL, {"keep_dims": True}),
    case("REDUCE_ALL", B.REDUCE_ALL, [flags(4, 5, 2), axis(1)], BOOL, {"keep_dims": False}),
    case("MEAN_int32", B.MEAN, [whole(4, 5), axis(0)], (Out(np.int32),), {"keep_dims": False}),
    case(
        "SUM_int8",
        B.SUM,
        [whole(4, 5, dtype=np.int8, quantization=per_tensor(0.1, 3)), axis(0)],
        (Out(np.int8, per_tensor(0.2, -7)),),
        {"keep_dims": False},
        # The reference resolver's int8 sums are whatever the memory held before.
        resolver="BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernels_match_litert(case, backend):
    check(case, backend)


@pytest.mark.parametrize("opcode", [B.ADD, B.SUB, B.MUL], ids=lambda o: o.name)
@pytest.mark.parametrize("dtype", [np.uint8, np.int16])
@pytest.mark.parametrize("scales", [(0.11, 0.07, 0.2), (0.25, 0.5, 0.5)])
def test_arithmetic_of_levels_matches_litert(opcode, dtype, scales, backend):
    """The second scales are powers of two, which int16 treats in a way of its own, without broadcasting."""
    info = np.iinfo(dtype)
    zeros = (0, 0, 0) if dtype is np.int16 else (101, 140, 97)
    args = [
        whole(60, 5, dtype=dtype, low=info.min, high=info.max, quantization=per_tensor(scales[0], zeros[0])),
        whole(
            60,
            1 if scales[0] == 0.11 else 5,
            dtype=dtype,
            low=info.min,
            high=info.max,
            quantization=per_tensor(scales[1], zeros[1]),
        ),
    ]
    check(case(opcode.name, opcode, args, (Out(dtype, per_tensor(scales[2], zeros[2])),)), backend)


def test_the_cube_root_which_litert_lacks():
    x = np.linspace(-9, 9, 101, dtype=np.float32)
    model = one_operator(B.STABLEHLO_CBRT, [Arg(x)], (Out(),))
    interpreter = Interpreter(model_content=model)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    np.testing.assert_allclose(found, np.cbrt(x.astype(np.float64)), rtol=3e-7, atol=1e-7)
