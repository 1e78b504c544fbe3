"""Activations against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check, constant, random

EDGES = np.array([-100, -89, -30, -9, -6, -3, -1, -1e-4, -0.0, 0, 1e-4, 0.5, 1, 3, 6, 9, 17, 89, 100])


def float_case(name, opcode, options=None, resolver="BUILTIN_REF") -> Case:
    values = np.concatenate([EDGES, np.linspace(-12, 12, 35_003)]).astype(np.float32)
    return case(name, Op[opcode], [Arg(values)], options=options, resolver=resolver)


def every_level(name, opcode, q_in, q_out, options=None, version=2) -> Case:
    values = np.arange(-128, 128).astype(np.int8).reshape(1, 16, 16)
    args = [Arg(values, per_tensor(*q_in))]
    return case(name, Op[opcode], args, [Out(np.int8, per_tensor(*q_out))], options, version)


def prelu(name, x, alpha, fed=False) -> Case:
    slopes = random(*alpha, seed=1)
    return case(name, Op.PRELU, [random(*x), slopes if fed else constant(slopes)])


CASES = [
    float_case("relu", "RELU"),
    float_case("relu6", "RELU6"),
    float_case("relu_n1_to_1", "RELU_N1_TO_1"),
    float_case("relu_0_to_1", "RELU_0_TO_1"),
    float_case("elu", "ELU", resolver="BUILTIN_WITHOUT_DEFAULT_DELEGATES"),
    float_case("hard_swish", "HARD_SWISH"),
    float_case("logistic", "LOGISTIC"),
    float_case("tanh", "TANH"),
    float_case("leaky_relu", "LEAKY_RELU", {"alpha": 0.3}),
    float_case("leaky_relu_negative", "LEAKY_RELU", {"alpha": -0.5}),
    float_case("gelu_exact", "GELU", {"approximate": False}),
    float_case("gelu_tanh", "GELU", {"approximate": True}),
    prelu("prelu_channel", (2, 5, 6, 7), (1, 1, 7)),
    prelu("prelu_image", (1, 5, 6, 7), (5, 6, 7)),
    prelu("prelu_fed", (1, 5, 6, 7), (1, 1, 7), fed=True),
    every_level("relu_int8", "RELU", (0.1, -3), (0.07, 10)),
    every_level("relu6_int8", "RELU6", (0.1, -3), (0.0313, -128)),
    every_level("relu_n1_to_1_int8", "RELU_N1_TO_1", (0.05, 0), (0.01, 4), version=1),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_activation_matches_litert(case, backend):
    check(case, backend)


EDGE_CASES = [
    case("RELU", Op.RELU, [random(3, 0)]),
]  # fmt: skip


@pytest.mark.parametrize("case", EDGE_CASES, ids=str)
def test_empty_and_scalar_operands_and_negative_axes_match_litert(case):
    check(case, CPU)
