"""FULLY_CONNECTED and BATCH_MATMUL against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import ActivationFunctionType, BuiltinOperator
from tests.runtime.models import Arg, Out, per_channel, per_tensor
from tests.runtime.ops.cases import Case, case, check, constant, levels, random
from tests.runtime.ops.matmul.test_conv import NONE, RELU, RELU6


def dense(name, x, w, bias=True, keep=False, activation: ActivationFunctionType = NONE) -> Case:
    args = [random(*x), constant(random(*w, seed=1)), constant(random(w[0], seed=2)) if bias else None]
    options = {"keep_num_dims": keep, "fused_activation_function": activation}
    return case(name, BuiltinOperator.FULLY_CONNECTED, args, options=options, version=5 if keep else 1)


def computed(name, x, w, bias="", kept="", keep=False, activation: ActivationFunctionType = NONE) -> Case:
    """Operands that are fed; `bias` is "" for none or its shape, `kept` names constants among "xwb"."""
    args = [random(*x), random(*w, seed=1), random(*bias, seed=2) if bias else None]
    args = [constant(a) if a and letter in kept else a for letter, a in zip("xwb", args, strict=True)]
    options = {"keep_num_dims": keep, "fused_activation_function": activation}
    return case(name, BuiltinOperator.FULLY_CONNECTED, args, options=options, version=5 if keep else 1)


def dense_int8(name, x, w, channels=False, zero=-20, activation: ActivationFunctionType = NONE) -> Case:
    rng = np.random.default_rng(5)
    scales = rng.uniform(0.002, 0.02, w[0] if channels else 1)
    q = per_channel(scales) if channels else per_tensor(scales[0])
    args = [
        levels(*x, quantization=per_tensor(0.04, zero)),
        constant(levels(*w, seed=1, low=-127, quantization=q)),
        Arg(rng.integers(-4000, 4000, w[0]).astype(np.int32), per_channel(0.04 * scales), constant=True),
    ]
    out = Out(np.int8, per_tensor(0.04 * 0.01 * 70 * 70 * np.sqrt(w[1]) / 60, 9))
    options = {"fused_activation_function": activation}
    return case(name, BuiltinOperator.FULLY_CONNECTED, args, [out], options, version=4)


def accumulators(name, multiplier) -> Case:
    """One input level against a sweep of biases: every accumulator from -6000 to 6000."""
    count = 12001
    args = [
        Arg(np.zeros((1, 1), np.int8), per_tensor(multiplier)),
        Arg(np.ones((count, 1), np.int8), per_tensor(1.0), constant=True),
        Arg(np.arange(-6000, 6001, dtype=np.int32), per_tensor(multiplier), constant=True),
    ]
    return case(name, BuiltinOperator.FULLY_CONNECTED, args, [Out(np.int8, per_tensor(1.0))], version=4)


def matmul(name, x, z, adj_x=False, adj_y=False, version=1, z_constant=False) -> Case:
    right = random(*z, seed=1)
    args = [random(*x), constant(right) if z_constant else right]
    options = {"adj_x": adj_x, "adj_y": adj_y}
    return case(name, BuiltinOperator.BATCH_MATMUL, args, options=options, version=version)


CASES = [
    dense("vector", (1, 40), (7, 40)),
    dense("batch_relu", (5, 33), (17, 33), activation=RELU),
    dense("flattened_relu6", (2, 3, 4, 5), (6, 20), activation=RELU6),
    dense("keep_dims_no_bias", (2, 3, 10), (4, 10), bias=False, keep=True),
    dense("long", (1, 1280), (1000, 1280)),
    dense("parts_of_pixels", (2, 6), (7, 4)),
    dense("parts_of_odd_pixels", (4, 3, 15), (5, 9), activation=RELU),
    computed("computed_vector", (1, 40), (7, 40)),
    computed("computed_number", (1, 17), (1, 17), (1,)),
    computed("computed_rows_relu", (5, 33), (17, 33), (17,), activation=RELU),
    computed("computed_rows_fixed_bias", (17, 7), (255, 7), (255,), "b", activation=RELU6),
    computed("computed_pixels", (2, 3, 4, 5), (6, 20), (6,)),
    computed("computed_row_of_pixels", (1, 3, 17), (5, 51), (5,)),
    computed("computed_dense_pixels", (6, 2, 16), (5, 32)),
    computed("computed_parts_of_pixels", (2, 6), (7, 4), (7,)),
    computed("computed_parts_of_odd_pixels", (4, 3, 15), (5, 9)),
    computed("computed_keep_dims", (2, 3, 10), (4, 10), (4,), keep=True),
    computed("computed_weights_fixed_input", (17, 10), (4, 10), (4,), "x"),
    computed("computed_weights_fixed_pixels", (2, 17, 5), (4, 10), (4,), "xb"),
    computed("computed_bias", (3, 10), (5, 10), (5,), "w"),
    computed("computed_bias_row", (3, 10), (5, 10), (1, 5), "w", activation=RELU),
    computed("computed_bias_column", (3, 10), (5, 10), (5, 1), "w"),
    computed("many", (130, 64), (130, 64), (130,)),
    dense_int8("int8_vector", (1, 300), (20, 300)),
    dense_int8("int8_batch_relu", (3, 65), (9, 65), zero=0, activation=RELU),
    dense_int8("int8_per_channel", (2, 65), (9, 65), channels=True),
    dense_int8("int8_deep", (1, 3000), (9, 3000), zero=127),
    accumulators("int8_ties", 2.0**-7),
    accumulators("int8_sweep", 0.0073),
    matmul("matmul", (3, 4, 5), (3, 5, 6)),
    matmul("matmul_adjoint", (2, 5, 4), (2, 6, 5), adj_x=True, adj_y=True),
    matmul("matmul_broadcast", (2, 3, 4, 5), (1, 3, 5, 2)),
    matmul("matmul_constant", (2, 4, 5), (2, 5, 2), z_constant=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_fully_connected_matches_litert(case, backend):
    check(case, backend)
