"""DEPTHWISE_CONV_2D against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import ShapeError
from runtime.model.schema import ActivationFunctionType, Padding
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, one_operator, per_channel, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check, constant, levels, random
from tests.runtime.ops.matmul.test_conv import NONE, RELU, RELU6, VALID
from tests.runtime.ops.matmul.test_conv import options as conv_options


def options(multiplier=1, activation: ActivationFunctionType = NONE, **more):
    return {**conv_options(activation=activation, **more), "depth_multiplier": multiplier}


def depthwise(name, x, size, multiplier=1, bias=True, **more) -> Case:
    channels = x[3] * multiplier
    args = [random(*x), constant(random(1, *size, channels, seed=1)), constant(random(channels, seed=2))]
    return case(
        name,
        Op.DEPTHWISE_CONV_2D,
        args[: 2 + bias],
        options=options(multiplier, **more),
        version=2 if "dilation" in more else 1,
    )


def depthwise_int8(name, x, size, multiplier=1, zero=5, **more) -> Case:
    channels = x[3] * multiplier
    rng = np.random.default_rng(4)
    scales = rng.uniform(0.002, 0.02, channels)
    weights = levels(1, *size, channels, seed=1, low=-127, quantization=per_channel(scales, 3))
    bias = rng.integers(-2000, 2000, channels).astype(np.int32)
    args = [
        levels(*x, quantization=per_tensor(0.05, zero)),
        constant(weights),
        Arg(bias, per_channel(0.05 * scales), constant=True),
    ]
    out = Out(np.int8, per_tensor(0.05 * 0.01 * 70 * 70 * np.sqrt(size[0] * size[1]) / 60, -3))
    return case(name, Op.DEPTHWISE_CONV_2D, args, [out], options(multiplier, **more), version=3)


CASES = [
    depthwise("same_3x3", (1, 9, 11, 5), (3, 3)),
    depthwise("valid_3x3_relu6", (2, 9, 8, 16), (3, 3), padding=VALID, activation=RELU6),
    depthwise("same_stride2_even", (1, 8, 8, 6), (3, 3), stride=(2, 2)),
    depthwise("same_stride2_odd", (1, 7, 9, 6), (3, 3), stride=(2, 2)),
    depthwise("valid_stride2", (2, 9, 9, 4), (3, 3), padding=VALID, stride=(2, 2), activation=RELU),
    depthwise("same_5x5", (1, 10, 14, 8), (5, 5)),
    depthwise("same_5x5_stride2", (1, 15, 14, 8), (5, 5), stride=(2, 2)),
    depthwise("multiplier", (1, 6, 7, 3), (3, 3), multiplier=4),
    depthwise("multiplier_stride2_no_bias", (2, 6, 7, 3), (2, 3), multiplier=2, stride=(2, 2), bias=False),
    depthwise("dilated", (1, 12, 13, 4), (3, 3), dilation=(2, 3)),
    depthwise("mixed_strides", (1, 11, 12, 4), (3, 3), stride=(1, 1), padding=VALID),
    depthwise("one_column", (1, 9, 1, 7), (3, 1)),
    depthwise("filter_larger_than_input", (1, 2, 3, 4), (5, 5)),
    depthwise("wide_channels", (1, 7, 7, 600), (3, 3)),
    depthwise("many_blocks", (1, 90, 64, 24), (3, 3)),
    depthwise_int8("int8_same_3x3", (1, 9, 11, 5), (3, 3)),
    depthwise_int8("int8_stride2_relu6", (2, 8, 9, 6), (3, 3), stride=(2, 2), activation=RELU6),
    depthwise_int8("int8_multiplier", (1, 6, 7, 3), (3, 3), multiplier=3, zero=-128),
    depthwise_int8("int8_valid_5x5", (1, 12, 11, 4), (5, 5), padding=VALID, zero=0),
    depthwise_int8("int8_dilated", (1, 12, 23, 20), (3, 3), dilation=(2, 3)),
    depthwise_int8("int8_dilated_further_than_wide", (2, 5, 3, 4), (3, 3), dilation=(1, 4)),
    depthwise_int8("int8_dilated_even_window", (1, 9, 30, 7), (2, 4), dilation=(1, 2), padding=VALID),
    depthwise_int8("int8_stride2_5x5", (1, 15, 37, 33), (5, 5), stride=(2, 2)),
    depthwise_int8("int8_stride2_even_window", (1, 9, 31, 18), (4, 2), stride=(2, 2), zero=-128),
    depthwise_int8("int8_stride3", (1, 9, 10, 5), (3, 3), stride=(3, 3)),
    depthwise_int8("int8_one_row", (1, 1, 29, 48), (1, 7)),
    depthwise_int8("int8_of_one_channel", (2, 11, 9, 1), (5, 4), multiplier=24, stride=(2, 2)),
    depthwise_int8("int8_large_window", (1, 12, 11, 3), (9, 8)),
    depthwise_int8("int8_many_blocks", (1, 90, 64, 24), (3, 3), zero=127),
    depthwise_int8("int8_64_channels", (2, 9, 11, 64), (3, 3), activation=RELU6),
    depthwise_int8("int8_96_channels", (1, 12, 10, 96), (3, 3), stride=(2, 2), zero=-128),
    depthwise_int8("int8_130_channels", (1, 9, 13, 130), (5, 5), zero=127),
    depthwise_int8("int8_tall_window", (1, 13, 3, 190), (6, 2), dilation=(2, 1), stride=(1, 2)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_depthwise_conv_matches_litert(case, backend):
    check(case, backend)


def test_depthwise_conv_refuses_a_filter_that_is_no_multiple():
    model = one_operator(
        Op.DEPTHWISE_CONV_2D,
        [random(1, 4, 4, 3), constant(random(1, 3, 3, 4))],
        options=options(padding=Padding.SAME),
    )
    with pytest.raises(ShapeError, match="for 3 input channels"):
        Interpreter(model_content=model).allocate_tensors()


MULTIPLIERS = [
    case(
        f"multiplier {multiplier}, option {option}",
        Op.DEPTHWISE_CONV_2D,
        [random(1, 6, 5, 3), random(1, 3, 3, 3 * multiplier, seed=1), random(3 * multiplier)],
        options={"stride_w": 1, "stride_h": 1, "depth_multiplier": option},
    )
    for multiplier, option in ((1, 1), (2, 2), (5, 5))
]


@pytest.mark.parametrize("case", MULTIPLIERS, ids=str)
def test_depth_multipliers_match_litert(case):
    check(case, CPU)
