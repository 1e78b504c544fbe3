"""SVDF in float, hybrid and integer arithmetic, against LiteRT, over several runs."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from runtime.model.schema import ActivationFunctionType as Activation
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Builder, per_tensor
from tests.runtime.ops.recurrent.runs import BATCH, CELLS, INPUT, check, check_on_gpu, sequences, svdf_cell


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("weights", ["float", "hybrid", "hybrid_asymmetric"])
def test_svdf_matches_litert(bias, rank, weights):
    cell = svdf_cell(weights != "float", rank, bias=bias)
    cell.input(0, BATCH, INPUT)
    options = {
        "rank": rank,
        "fused_activation_function": Activation.RELU,
        "asymmetric_quantize_inputs": weights.endswith("asymmetric"),
    }
    check(cell.model(Op.SVDF, 5, options), sequences((BATCH, INPUT)), loose=weights != "float")


def float_filters() -> tuple[list[bytes], list[list[list[np.ndarray]]]]:
    """Return models of one operator, and what is fed to each in several runs."""
    models, fed = [], []
    sizes = [(rank, bias, INPUT, 7) for rank, bias in product((1, 2), (True, False))]
    for rank, bias, inputs, memory in [*sizes, (2, True, 300, 7), (3, True, 9, 70)]:
        cell = svdf_cell(False, rank, bias=bias, inputs=inputs, memory=memory)
        cell.input(0, BATCH, inputs)
        options = {"rank": rank, "fused_activation_function": Activation.RELU}
        models.append(cell.model(Op.SVDF, 5, options))
        fed.append(sequences((BATCH, inputs)))
    return models, fed


def test_float_filters_on_the_gpu_match_litert(gpu):
    check_on_gpu(*float_filters(), gpu)


def integer(rank: int, inputs=INPUT, memory=7) -> tuple[bytes, list[list[np.ndarray]]]:
    """Return a model of one operator, and what is fed to it in 9 runs: more than a short memory holds."""
    filters = 2 * CELLS
    rng, builder = np.random.default_rng(3), Builder()
    x = builder.input(np.int8, (BATCH, inputs), per_tensor(0.02, 5))
    feature = builder.constant(rng.integers(-127, 128, (filters, inputs)).astype(np.int8), per_tensor(0.01))
    time = builder.constant(
        rng.integers(-8000, 8001, (filters, memory)).astype(np.int16), per_tensor(1 / 32768)
    )
    bias = builder.constant(rng.integers(-20000, 20000, filters // rank).astype(np.int32), per_tensor(2e-8))
    state = builder.tensor(np.int16, (BATCH, filters * memory), per_tensor(1e-3), is_variable=True)
    y = builder.tensor(np.int8, (), per_tensor(0.05, -20))
    options = {"rank": rank, "fused_activation_function": Activation.RELU}
    builder.operator(Op.SVDF, [x, feature, time, bias, state], [y], options, 3)
    fed = [[rng.integers(-128, 128, (BATCH, inputs)).astype(np.int8)] for _ in range(9)]
    return builder.write([y]), fed


@pytest.mark.parametrize("rank", [1, 2])
def test_integer_svdf_equals_litert(rank):
    check(*integer(rank))


def test_integer_filters_on_the_gpu_equal_litert(gpu):
    made = [integer(1), integer(2), integer(3, 300, 70)]
    check_on_gpu([file for file, _ in made], [fed for _, fed in made], gpu)
