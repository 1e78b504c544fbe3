"""Models that are moved or rounded as honest delegates round: by how much, and which of their constants."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.judge.bounds import MOVE
from runtime.measure.perturbed import (
    NothingToMoveError,
    moved_constants,
    moved_inputs,
    rounded,
    rounded_constants,
)
from runtime.model.graph import Model, Operator, Quantization, Subgraph, Tensor
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.writer import write_model

WEIGHTS = np.random.default_rng(1).normal(0, 1, (8, 16)).astype(np.float32)


def layer(weights=WEIGHTS, kind=TensorType.FLOAT32, scales=(), opcode=BuiltinOperator.FULLY_CONNECTED):
    """Build a model of one operator with weights and a bias."""
    quantization = Quantization(scales, (0,) * len(scales)) if scales else None
    tensors = (
        Tensor(0, "x", TensorType.FLOAT32, (1, 16)),
        Tensor(1, "w", kind, weights.shape, buffer=1, data=memoryview(weights.tobytes()),
               quantization=quantization),
        Tensor(2, "b", TensorType.FLOAT32, (8,), buffer=2, data=memoryview(np.ones(8, np.float32).tobytes())),
        Tensor(3, "y", TensorType.FLOAT32, (1, 8)),
    )  # fmt: skip
    operator = Operator(0, opcode, 1, (0, 1, 2), (3,))
    return write_model(Model(3, "", (Subgraph(0, "main", tensors, (0,), (3,), (operator,)),)))


def constants(data, dtype=np.float32):
    tensors = read_model(data).subgraphs[0].tensors
    return [np.frombuffer(tensors[i].data, kind) for i, kind in ((1, dtype), (2, np.float32))]


def test_floats_of_an_input_are_moved_by_a_millionth_and_nothing_else_is():
    x, ids = np.linspace(0.5, 2, 1000, dtype=np.float32), np.arange(5)
    moved, same = moved_inputs((x, ids))
    share = np.abs(moved.astype(float) / x - 1)
    assert (moved.dtype, share.min() > 0.8 * MOVE, share.max() < 1.2 * MOVE) == (x.dtype, True, True)
    assert same is ids


@pytest.mark.parametrize(("precision", "step"), [("fp16", 2.0**-11), ("bf16", 2.0**-8)])
@pytest.mark.parametrize("draw", [0, 1])
def test_weights_are_rounded_and_the_bias_stays(precision, step, draw):
    weights, bias = constants(rounded_constants(layer(), precision, draw))
    share = np.abs(weights / WEIGHTS.reshape(-1) - 1)
    assert step / 8 < share.max() <= 1.001 * step
    assert (bias == 1).all()
    other, _ = constants(rounded_constants(layer(), precision, 1 - draw))
    assert (other != weights).mean() > 0.5, "the two draws are independent"


def test_rounding_to_fp16_is_numpys_and_to_bf16_drops_the_lower_half():
    values = np.random.default_rng(2).normal(0, 1, 1000)
    assert (rounded(values, "fp16") == values.astype(np.float16)).all()
    narrow = rounded(values, "bf16").astype(np.float32)
    assert (narrow.view(np.uint32) & 0xFFFF == 0).all()
    assert rounded(np.array([1e9, -1e9]), "fp16").tolist() == [65504.0, -65504.0]


def test_of_integer_weights_the_scales_are_moved():
    stored = np.arange(128, dtype=np.int8).reshape(8, 16)
    data = layer(stored, TensorType.INT8, scales=(0.5,) * 8)
    moved = read_model(moved_constants(data)).subgraphs[0].tensors[1]
    assert bytes(moved.data) == stored.tobytes()
    share = np.abs(np.array(moved.quantization.scales) / 0.5 - 1)
    assert 0.5 * MOVE < share.min() <= share.max() < 1.5 * MOVE


def test_a_model_without_weights_of_a_product_has_nothing_to_move():
    data = layer(opcode=BuiltinOperator.ADD)
    with pytest.raises(NothingToMoveError):
        moved_constants(data)
