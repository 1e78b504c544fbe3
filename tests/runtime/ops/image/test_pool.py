"""Pooling against LiteRT's reference kernels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import ShapeError
from runtime.model.schema import ActivationFunctionType, Padding
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Out, one_operator, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check, levels, random
from tests.runtime.ops.matmul.test_conv import NONE, RELU, RELU6, SAME, VALID
from tests.runtime.ops.operands import whole


def options(size=(2, 2), stride=(2, 2), padding=VALID, activation: ActivationFunctionType = NONE):
    return {
        "padding": padding,
        "stride_h": stride[0],
        "stride_w": stride[1],
        "filter_height": size[0],
        "filter_width": size[1],
        "fused_activation_function": activation,
    }


def pool(name, kind, shape, **more) -> Case:
    return case(name, Op[f"{kind}_POOL_2D"], [random(*shape)], options=options(**more))


def pool_int8(name, kind, shape, **more) -> Case:
    q = per_tensor(0.1, -5)
    args = [levels(*shape, quantization=q)]
    return case(name, Op[f"{kind}_POOL_2D"], args, [Out(np.int8, q)], options(**more), version=2)


def pool_uint8(kind, shape, **more) -> Case:
    q = per_tensor(0.05, 131)
    args = [whole(*shape, dtype=np.uint8, low=0, high=256, quantization=q)]
    name, out = f"{kind.lower()}_uint8_{shape[3]}", Out(np.uint8, q)
    return case(name, Op[f"{kind}_POOL_2D"], args, [out], options=options(**more), version=1)


CASES = [
    pool("max_2x2", "MAX", (2, 8, 6, 5)),
    pool("max_3x3_same_stride2", "MAX", (1, 9, 8, 5), size=(3, 3), padding=SAME),
    pool("max_3x3_valid_relu6", "MAX", (1, 13, 13, 16), size=(3, 3), activation=RELU6),
    pool("max_3x3_same_stride1_relu", "MAX", (1, 7, 8, 3), size=(3, 3), stride=(1, 1), padding=SAME,
         activation=RELU),
    pool("max_mixed", "MAX", (1, 11, 9, 4), size=(2, 3), stride=(3, 1), padding=SAME),
    pool("average_2x2", "AVERAGE", (2, 8, 6, 5)),
    pool("average_3x3_same", "AVERAGE", (1, 9, 8, 5), size=(3, 3), stride=(1, 1), padding=SAME),
    pool("average_global", "AVERAGE", (1, 7, 7, 20), size=(7, 7), stride=(1, 1)),
    pool("average_relu", "AVERAGE", (1, 9, 8, 5), size=(2, 2), padding=SAME, activation=RELU),
    pool_int8("max_int8", "MAX", (1, 9, 8, 5), size=(3, 3), padding=SAME),
    pool_int8("max_int8_relu6", "MAX", (1, 8, 8, 5), activation=RELU6),
    pool_int8("average_int8", "AVERAGE", (1, 9, 8, 5), size=(3, 3), padding=SAME),
    pool_int8("average_int8_even_relu", "AVERAGE", (1, 8, 8, 5), activation=RELU),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pool_matches_litert(case, backend):
    check(case, backend)


def test_a_filter_of_zero_is_refused():
    model = one_operator(Op.MAX_POOL_2D, [random(1, 4, 4, 2)], options=options(size=(0, 2)))
    with pytest.raises(ShapeError, match="operator 0 MAX_POOL_2D: filter 0"):
        Interpreter(model_content=model).allocate_tensors()


SAME_PADDING = [
    *(
        case(f"{op.name} {size}", op, [random(1, 7, 8, 3)], options={
            "padding": Padding.SAME, "stride_w": 2, "stride_h": 3, "filter_width": size, "filter_height": 2})
        for op, size in itertools.product((Op.AVERAGE_POOL_2D, Op.MAX_POOL_2D), (2, 4))
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", SAME_PADDING, ids=str)
def test_same_padding_is_larger_behind(case):
    check(case, CPU)


BYTES = [
    pool_uint8("MAX", (1, 9, 8, 5), size=(3, 3), padding=SAME, activation=RELU6),
    pool_uint8("AVERAGE", (1, 9, 8, 5), size=(3, 3), padding=SAME),
    pool_uint8("AVERAGE", (2, 7, 7, 130), size=(7, 7), stride=(1, 1), activation=RELU),
]


@pytest.mark.parametrize("case", BYTES, ids=str)
def test_pools_of_uint8_match_litert(case):
    check(case, CPU)


MORE_CASES = [
    pool("l2_same_relu6", "L2", (2, 9, 8, 5), size=(3, 3), padding=SAME, activation=RELU6),
    pool("l2_one_channel", "L2", (4, 5, 4, 1), size=(2, 4), stride=(1, 3)),
    pool("l2_many_channels", "L2", (1, 3, 4, 255), size=(3, 4), stride=(1, 1), padding=SAME),
    case("L2_POOL", Op.L2_POOL_2D, [random(1, 7, 6, 3)],
         options={"padding": 0, "stride_w": 2, "stride_h": 1, "filter_width": 3, "filter_height": 2}),
]  # fmt: skip


@pytest.mark.parametrize("case", MORE_CASES, ids=str)
def test_l2_pool_matches_litert(case, backend):
    check(case, backend)
