"""CONV_2D against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import ShapeError
from runtime.model.schema import ActivationFunctionType, Padding
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, one_operator, per_channel, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check, constant, levels, random

SAME, VALID = Padding.SAME, Padding.VALID
NONE, RELU, RELU6, N1 = (
    ActivationFunctionType.NONE,
    ActivationFunctionType.RELU,
    ActivationFunctionType.RELU6,
    ActivationFunctionType.RELU_N1_TO_1,
)


def options(padding=SAME, stride=(1, 1), dilation=(1, 1), activation=NONE):
    return {
        "padding": padding,
        "stride_h": stride[0],
        "stride_w": stride[1],
        "dilation_h_factor": dilation[0],
        "dilation_w_factor": dilation[1],
        "fused_activation_function": activation,
    }


def conv(name, x, w, **more) -> Case:
    """Float: input shape, filter shape [Co, kh, kw, Ci / groups]."""
    args = [random(*x), constant(random(*w, seed=1)), constant(random(w[0], seed=2))]
    return case(name, Op.CONV_2D, args, options=options(**more))


def conv_int8(name, x, w, zero=-7, **more) -> Case:
    """int8 with per-channel filters; the output scale keeps results inside and outside the range."""
    rng = np.random.default_rng(3)
    scales = rng.uniform(0.002, 0.02, w[0])
    in_scale = 0.05
    weights = levels(*w, seed=1, low=-127, quantization=per_channel(scales))
    accumulators = per_channel(in_scale * scales)
    values = Arg(rng.integers(-3000, 3000, w[0]).astype(np.int32), accumulators, constant=True)
    depth = int(np.prod(w[1:]))
    out = Out(np.int8, per_tensor(0.05 * 0.01 * 70 * 70 * np.sqrt(depth) / 60, 11))
    args = [levels(*x, quantization=per_tensor(in_scale, zero)), constant(weights), values]
    return case(name, Op.CONV_2D, args, [out], options(**more), version=3)


CASES = [
    conv("same_3x3", (1, 9, 11, 5), (7, 3, 3, 5)),
    conv("same_stride2_even", (1, 8, 8, 3), (4, 3, 3, 3), stride=(2, 2)),
    conv("same_stride2_odd", (1, 9, 7, 3), (4, 3, 3, 3), stride=(2, 2)),
    conv("valid_5x5_relu6", (2, 12, 10, 4), (8, 5, 5, 4), padding=VALID, activation=RELU6),
    conv("pointwise_relu", (2, 6, 5, 16), (24, 1, 1, 16), activation=RELU),
    conv("pointwise_stride2", (1, 7, 8, 6), (5, 1, 1, 6), stride=(2, 2)),
    conv("pointwise_large", (1, 56, 56, 16), (8, 1, 1, 16)),
    conv("even_filter_n1_to_1", (1, 5, 5, 2), (3, 2, 2, 2), activation=N1),
    conv("mixed_strides", (1, 13, 9, 3), (4, 3, 2, 3), stride=(3, 2)),
    conv("dilated_same", (1, 14, 12, 3), (4, 3, 3, 3), dilation=(2, 3)),
    conv("dilated_valid", (2, 14, 12, 3), (4, 3, 3, 3), padding=VALID, dilation=(3, 2)),
    conv("dilated_wide", (2, 14, 12, 16), (17, 3, 3, 16), dilation=(2, 2), activation=RELU),
    conv("dilated_as_the_image", (1, 9, 12, 16), (16, 3, 3, 16), dilation=(9, 9)),
    conv("dilated_beyond_the_image", (1, 6, 6, 3), (4, 3, 3, 3), dilation=(7, 5)),
    conv("grouped", (2, 7, 7, 8), (12, 3, 3, 2)),
    conv("grouped_stride2_relu", (1, 8, 9, 6), (6, 3, 3, 3), stride=(2, 2), activation=RELU),
    conv("groups_of_many", (2, 5, 6, 96), (132, 3, 3, 32), stride=(2, 1), activation=RELU),
    conv("groups_of_many_odd", (1, 7, 5, 90), (108, 1, 2, 30)),
    conv("filter_larger_than_input", (1, 2, 3, 4), (3, 5, 5, 4)),
    conv("one_row", (1, 1, 20, 3), (5, 1, 7, 3)),
    conv("many_tiles", (1, 70, 60, 32), (8, 3, 3, 32)),
    conv_int8("int8_panels_that_overlap", (1, 7, 7, 21), (272, 1, 1, 21)),
    conv_int8("int8_odd_everything", (2, 9, 11, 3), (37, 5, 3, 3), stride=(2, 1)),
    conv_int8("int8_narrow_outputs", (1, 13, 5, 6), (9, 3, 3, 6), zero=127),
    conv_int8("int8_same_3x3", (1, 9, 11, 5), (7, 3, 3, 5)),
    conv_int8("int8_pointwise", (2, 6, 5, 16), (24, 1, 1, 16), activation=RELU6),
    conv_int8("int8_stride2", (1, 8, 9, 3), (4, 3, 3, 3), stride=(2, 2)),
    conv_int8("int8_valid_dilated_relu", (1, 12, 10, 3), (4, 3, 3, 3), padding=VALID, dilation=(2, 2),
              activation=RELU),
    conv_int8("int8_deep", (1, 6, 6, 130), (9, 3, 3, 130), zero=127),
    conv_int8("int8_deep_pointwise", (1, 3, 3, 2500), (9, 1, 1, 2500), zero=-128),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_conv_matches_litert(case, backend):
    check(case, backend)


def test_conv_refuses_a_filter_that_does_not_fit():
    model = one_operator(Op.CONV_2D, [random(1, 4, 4, 5), constant(random(2, 3, 3, 3))], options=options())
    with pytest.raises(ShapeError, match=r"operator 0 CONV_2D: 5 input channels do not divide"):
        Interpreter(model_content=model).allocate_tensors()


def test_conv_refuses_a_stride_of_zero():
    model = one_operator(
        Op.CONV_2D,
        [random(1, 4, 4, 3), constant(random(2, 3, 3, 3))],
        options=options(stride=(0, 1)),
    )
    with pytest.raises(ShapeError, match="must be positive"):
        Interpreter(model_content=model).allocate_tensors()


def convolved(name: str, image: tuple[int, ...], kernel: tuple[int, ...], **options: object) -> Case:
    """Build a convolution whose SAME padding is larger behind than before."""
    given = {**STEPS_OF_ONE, "padding": Padding.SAME, **options}
    return case(name, Op.CONV_2D, [random(*image), random(*kernel, seed=1), random(kernel[0])], options=given)


STEPS_OF_ONE = {"stride_w": 1, "stride_h": 1}
SAME_PADDING = [
    convolved("even kernel", (1, 6, 6, 2), (3, 2, 4, 2)),
    convolved("stride 2, odd image", (1, 7, 5, 2), (3, 3, 3, 2), stride_w=2, stride_h=2),
    convolved("stride 2, even image", (1, 8, 8, 2), (3, 3, 3, 2), stride_w=2, stride_h=2),
    convolved("dilated", (1, 9, 8, 2), (3, 3, 2, 2), dilation_w_factor=3, dilation_h_factor=2),
    convolved("stride beyond the kernel", (1, 9, 9, 1), (2, 1, 1, 1), stride_w=3, stride_h=4),
]  # fmt: skip
GROUPS = [convolved(f"{groups} groups", (1, 6, 5, 12), (24, 3, 3, 12 // groups)) for groups in (2, 3, 6, 12)]


@pytest.mark.parametrize("case", SAME_PADDING, ids=str)
def test_same_padding_is_larger_behind(case):
    check(case, CPU)


@pytest.mark.parametrize("case", GROUPS, ids=str)
def test_groups_of_a_convolution_match_litert(case):
    check(case, CPU)
