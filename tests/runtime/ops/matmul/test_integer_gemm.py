"""Sums of products of levels: exact in floating point however deep; every sum rounded as LiteRT rounds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from runtime.model.graph import Quantization
from runtime.model.schema import BuiltinOperator, Padding, TensorType
from runtime.ops.matmul.integer_gemm import ExactGemm
from tests.runtime.models import Arg, Out, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check
from tests.runtime.ops.contexts import context
from tests.runtime.ops.matmul.test_conv import NONE, options
from tests.runtime.ops.test_matmul_levels import KINDS, bias_type


def sweeps() -> Iterator[Case]:
    """One level of zero against a sweep of biases: every accumulator from -6000 to 6000 is rounded.

    Fully connected rounds once; convolutions round twice, with 64-bit sums once and a shorter multiplier.
    """
    count = 12001
    for kind in KINDS:
        if kind.bias is None or kind.narrow:
            continue
        zero = 128 if kind.data is np.uint8 else 0
        for multiplier in (2.0**-7, 0.0073):
            for opcode, x, w, version in (
                (BuiltinOperator.FULLY_CONNECTED, (1, 1), (count, 1), 11),
                (BuiltinOperator.CONV_2D, (1, 1, 1, 1), (count, 1, 1, 1), 8),
                (BuiltinOperator.DEPTHWISE_CONV_2D, (1, 1, 1, 1), (1, 1, 1, count), 5),
            ):
                if opcode is BuiltinOperator.DEPTHWISE_CONV_2D and kind.name == "int16_bias32":
                    continue
                scales = (float(np.float32(multiplier)),) * (count if kind.channels else 1)
                axis = 3 if opcode is BuiltinOperator.DEPTHWISE_CONV_2D else 0
                one = zero + 1 if kind.filter is np.uint8 else 1
                filter_zeros = ((zero if kind.filter is np.uint8 else 0),) * len(scales)
                args = [
                    Arg(np.full(x, zero, kind.data), per_tensor(1.0, zero)),
                    Arg(
                        np.full(w, one, kind.filter), Quantization(scales, filter_zeros, axis), constant=True
                    ),
                    Arg(
                        np.arange(-6000, 6001).astype(kind.bias),
                        Quantization(scales, (0,) * len(scales)),
                        constant=True,
                    ),
                ]
                given = options() | {"depth_multiplier": count} | bias_type(kind)
                kept = given if axis else {k: v for k, v in given.items() if k != "depth_multiplier"}
                if opcode is BuiltinOperator.FULLY_CONNECTED:
                    kept = {"fused_activation_function": NONE} | bias_type(kind)
                if axis:
                    kept.pop("quantized_bias_type")
                out = Out(kind.data, per_tensor(1.0, zero))
                name = f"sweep_{opcode.name.lower()}_{kind.name}_{multiplier:.4f}"
                yield case(name, opcode, args, [out], kept, version)


@pytest.mark.parametrize("case", list(sweeps()), ids=str)
def test_every_sum_is_rounded_as_the_reference_kernels_round_it(case):
    check(case, CPU)


@pytest.mark.parametrize("depth", [0, 1, 200, 1500, 9000])
@pytest.mark.parametrize(
    ("activations", "filters", "zero"),
    [(TensorType.INT8, np.int8, 0), (TensorType.UINT8, np.uint8, 137), (TensorType.INT16, np.int8, 0)],
    ids=["int8", "uint8", "int16"],
)
def test_sums_of_the_largest_levels_are_exact(activations, filters, zero, depth):
    """The largest products of all, of one sign: single precision holds fewer of them than `depth`."""
    largest = {TensorType.INT8: -128, TensorType.UINT8: 255, TensorType.INT16: -32768}[activations]
    stored = np.full((3, depth), np.iinfo(filters).min, filters)
    bias = np.array([-7.0, 0.0, 1e6])
    gemm = ExactGemm(context(), stored, zero, activations, 5, bias)
    a = np.full((2, depth), largest).astype(gemm.dtype)
    found = gemm.lane()(a, np.empty((2, 3), gemm.dtype), np.empty((2, 3))) + gemm.offset
    weight = int(np.iinfo(filters).min) - zero
    np.testing.assert_array_equal(found, np.tile(depth * weight * (largest - 5) + bias, (2, 1)))
    assert np.abs(found).max() <= gemm.limit


def test_sums_of_random_levels_are_exact():
    rng = np.random.default_rng(3)
    stored = rng.integers(-128, 128, (17, 5000)).astype(np.int8)
    gemm = ExactGemm(context(), stored, 0, TensorType.INT8, -9, np.zeros(17))
    a = rng.integers(-128, 128, (6, 5000))
    found = gemm.lane()(a.astype(gemm.dtype), np.empty((6, 17), gemm.dtype), np.empty((6, 17))) + gemm.offset
    np.testing.assert_array_equal(found, (a + 9) @ stored.T.astype(np.int64))


EXTREME = np.array([sign << bits for bits in (20, 30, 35, 38, 39, 40, 44, 46) for sign in (1, -1)], np.int64)
"""Biases whose level on the output's scale, a hundredth of them, leaves 16 and then 32 bits."""

_WINDOW = options() | {"padding": Padding.VALID}


@pytest.mark.parametrize(
    ("opcode", "filters", "more", "version"),
    [
        (BuiltinOperator.CONV_2D, (len(EXTREME), 1, 1, 3), {}, 5),
        (BuiltinOperator.DEPTHWISE_CONV_2D, (1, 1, 1, len(EXTREME)), {"depth_multiplier": len(EXTREME)}, 5),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_an_extreme_bias_wraps_around_as_in_litert(opcode, filters, more, version, backend):
    """The reference narrows to 32 bits, then clamps; `gpu`, whose numbers are real, leaves it to the CPU."""
    rng = np.random.default_rng(1)
    inputs = filters[3] if opcode is BuiltinOperator.CONV_2D else 1
    scales, axis = (float(np.float32(0.01)),) * len(EXTREME), 3 if inputs == 1 else 0
    zeros = (0,) * len(EXTREME)
    args = [
        Arg(rng.integers(-32768, 32768, (1, 2, 2, inputs)).astype(np.int16), per_tensor(1e-4)),
        Arg(
            rng.integers(-127, 128, filters).astype(np.int8), Quantization(scales, zeros, axis), constant=True
        ),
        Arg(EXTREME, Quantization(tuple(1e-4 * s for s in scales), zeros), constant=True),
    ]
    made = case("", opcode, args, [Out(np.int16, per_tensor(1e-4))], _WINDOW | more, version)
    reason = "the bias in tensor 2 reaches 7.04e+11 levels of the output, where LiteRT's kernels wrap around"
    check(replace(made, refused={opcode.name: reason}), backend)
