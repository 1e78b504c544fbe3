"""The LSTM of four joined gates, in float and uint8, against LiteRT."""

from __future__ import annotations

import numpy as np

from runtime.model.schema import ActivationFunctionType as Activation
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import LSTMKernelType
from tests.runtime.models import per_tensor
from tests.runtime.ops.recurrent.cells import Cell
from tests.runtime.ops.recurrent.runs import BATCH, CELLS, INPUT, RUNS, check, sequences

BASIC = {"fused_activation_function": Activation.TANH, "kernel_type": LSTMKernelType.BASIC}


def test_basic_lstm_matches_litert():
    cell = Cell()
    cell.input(0, BATCH, INPUT)
    cell.state(1, BATCH, CELLS)
    cell.matrix(2, 4 * CELLS, INPUT + CELLS)
    cell.vector(3, 4 * CELLS)
    cell.state(4, BATCH, CELLS)
    check(cell.model(Op.LSTM, 5, BASIC, outputs=4), sequences((BATCH, INPUT)))


def test_basic_uint8_lstm_equals_litert():
    cell, q = Cell(rng=np.random.default_rng(11)), per_tensor(1 / 128, 128)
    state_scale, weight_scale = per_tensor(2.0**-11), 0.005
    weights = cell.rng.integers(0, 256, (4 * CELLS, INPUT + CELLS)).astype(np.uint8)
    bias = cell.rng.integers(-20000, 20000, 4 * CELLS).astype(np.int32)
    cell.input(0, BATCH, INPUT, dtype=np.uint8, quantization=q)
    cell.state(1, BATCH, CELLS, dtype=np.uint8, quantization=q)
    cell.slots[2] = cell.builder.constant(weights, per_tensor(weight_scale, 117))
    cell.slots[3] = cell.builder.constant(bias, per_tensor(weight_scale / 128))
    cell.state(4, BATCH, CELLS, dtype=np.int16, quantization=state_scale)
    outputs = [
        cell.builder.tensor(np.uint8, (), q),
        cell.builder.tensor(np.int16, (), state_scale),
        cell.builder.tensor(np.uint8, (), q),
        cell.builder.tensor(np.int16, (), per_tensor(2.0**-12)),
    ]
    model = cell.finish(Op.LSTM, 5, outputs, BASIC, 2)
    fed = [[cell.rng.integers(0, 256, (BATCH, INPUT)).astype(np.uint8)] for _ in range(RUNS)]
    check(model, fed)
