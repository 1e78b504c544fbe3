"""QUANTIZE, DEQUANTIZE and CAST against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, const, per_channel, per_tensor
from tests.runtime.ops.cases import Case, case, check, levels, random

QUANTIZE, DEQUANTIZE, CAST = BuiltinOperator.QUANTIZE, BuiltinOperator.DEQUANTIZE, BuiltinOperator.CAST
SWEEP = np.concatenate([np.linspace(-9, 9, 4001), np.arange(-40, 41) * 0.05]).astype(np.float32)
ALL8 = np.arange(-128, 128).astype(np.int8)
TRICKY = np.array([0, -0.0, 0.5, -0.5, 1.5, 2.99, -2.99, 127.9, -128.7, 3e9, -3e9], np.float32)
LIMITS = np.array([2**31 - 128, 2**31, -(2**31), -(2**31) - 256, np.inf, -np.inf, np.nan], np.float32)


def cast(name, value, dtype) -> Case:
    return case(name, CAST, [Arg(value)], [Out(dtype)])


CASES = [
    case("quantize_int8", QUANTIZE, [Arg(SWEEP)], [Out(np.int8, per_tensor(0.05, 7))]),
    case("quantize_uint8", QUANTIZE, [Arg(SWEEP)], [Out(np.uint8, per_tensor(0.031, 128))]),
    case("quantize_int16", QUANTIZE, [Arg(SWEEP)], [Out(np.int16, per_tensor(0.0003, 0))]),
    case("requantize_int8", QUANTIZE, [Arg(ALL8, per_tensor(0.05, 7))],
         [Out(np.int8, per_tensor(0.031, -20))]),
    case("requantize_to_uint8", QUANTIZE, [Arg(ALL8, per_tensor(0.05, 7))],
         [Out(np.uint8, per_tensor(0.05, 135))]),
    case("dequantize_int8", DEQUANTIZE, [Arg(ALL8, per_tensor(0.0517, 7))], version=2),
    case("dequantize_uint8", DEQUANTIZE, [Arg(ALL8.view(np.uint8), per_tensor(0.0517, 130))]),
    case("dequantize_channels", DEQUANTIZE, [levels(4, 3, quantization=per_channel([0.1, 0.7, 0.03], 1))],
         version=5),
    case("dequantize_half", DEQUANTIZE, [const(random(3, 40).value, np.float16)], version=3),
    cast("float_to_int32", TRICKY, np.int32),
    cast("float_to_bool", TRICKY, np.bool_),
    cast("int32_to_float", np.arange(-5, 6, dtype=np.int32), np.float32),
    cast("int64_to_int32", np.array([1, -7, 2**33 + 5], np.int64), np.int32),
    cast("bool_to_float", np.array([True, False]), np.float32),
    cast("int8_to_float", ALL8, np.float32),
    cast("float_to_int64", np.append(TRICKY, np.float32([2**40, 1e19, -1e19, np.inf, np.nan])), np.int64),
    cast("float_to_int32_limits", LIMITS, np.int32),
    cast("int64_to_float", np.array([2**24 + 1, -(2**40) - 1, 2**63 - 1, -(2**63)]), np.float32),
    cast("int32_to_int64", np.array([[2**31 - 1] * 3, [-(2**31)] * 3, [0, -1, 1]], np.int32), np.int64),
    cast("bool_to_int32", np.array([[True, False, True]] * 4), np.int32),
    cast("bool_to_int64", np.array([True] * 255), np.int64),
    cast("int32_to_bool", np.array([-(2**31), -1, 0, 1, 256], np.int32), np.bool_),
    cast("int64_to_bool", np.array([2**32, -1, 0, 1, 2**63 - 1]), np.bool_),
    cast("float_to_bool_of_nan", np.array([np.nan, -0.0, 1e-45, -np.inf], np.float32), np.bool_),
    cast("int32_itself", np.array([[3, -5]], np.int32), np.int32),
    cast("float_itself", TRICKY, np.float32),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_quantize_matches_litert(case, backend):
    check(case, backend)


GRIDS = [
    case("FAKE_QUANT", Op.FAKE_QUANT, [random(300, low=-4, high=4)],
         options={"min": -1.3, "max": 2.9, "num_bits": 8, "narrow_range": False}),
]  # fmt: skip


@pytest.mark.parametrize("case", GRIDS, ids=str)
def test_simulated_levels_match_litert(case, backend):
    check(case, backend)
