"""The LSTM of four joined gates, in float and uint8, against LiteRT."""

from __future__ import annotations

import numpy as np

from runtime.api.interpreter import Interpreter
from runtime.model.schema import ActivationFunctionType as Activation
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import LSTMKernelType
from tests.runtime.models import per_tensor
from tests.runtime.ops.recurrent.cells import Cell
from tests.runtime.ops.recurrent.runs import BATCH, CELLS, INPUT, RUNS, check, check_on_gpu, sequences

BASIC = {"fused_activation_function": Activation.TANH, "kernel_type": LSTMKernelType.BASIC}


def test_basic_lstm_matches_litert():
    cell = Cell()
    cell.input(0, BATCH, INPUT)
    cell.state(1, BATCH, CELLS)
    cell.matrix(2, 4 * CELLS, INPUT + CELLS)
    cell.vector(3, 4 * CELLS)
    cell.state(4, BATCH, CELLS)
    check(cell.model(Op.LSTM, 5, BASIC, outputs=4), sequences((BATCH, INPUT)))


def sized(batch: int, inputs: int, cells: int) -> bytes:
    """Without the working memory as a result, which the delegate has none of."""
    cell = Cell(rng=np.random.default_rng(cells))
    cell.input(0, batch, inputs)
    cell.state(1, batch, cells)
    cell.matrix(2, 4 * cells, inputs + cells)
    cell.vector(3, 4 * cells)
    cell.state(4, batch, cells)
    made = [cell.builder.tensor(np.float32) for _ in range(4)]
    cell.builder.operator(Op.LSTM, [cell.slots[i] for i in range(5)], made, BASIC)
    return cell.builder.write(made[:2])


def test_basic_lstms_on_the_gpu_match_litert(gpu):
    sizes = [(1, 1, 1), (2, 3, 5), (1, 7, 16), (4, 17, 33), (3, 2, 255)]
    models = [sized(*size) for size in sizes]
    check_on_gpu(models, [sequences((batch, inputs)) for batch, inputs, _ in sizes], gpu)


def test_working_memory_that_is_a_result_keeps_the_operator_on_the_cpu_path(gpu):
    cell = Cell()
    cell.input(0, BATCH, INPUT)
    cell.state(1, BATCH, CELLS)
    cell.matrix(2, 4 * CELLS, INPUT + CELLS)
    cell.vector(3, 4 * CELLS)
    cell.state(4, BATCH, CELLS)
    model = cell.model(Op.LSTM, 5, BASIC, outputs=4)
    interpreter = Interpreter(model_content=model, experimental_delegates=[gpu.delegate])
    interpreter.allocate_tensors()
    (fallback,) = interpreter.delegation.fallbacks
    assert fallback.reason == "tensor 7, working memory of the basic kernel, is read"


def of_bytes(results: int) -> tuple[bytes, list[list[np.ndarray]]]:
    """Return the kernel of uint8 with so many of its outputs as results, and what is fed to it."""
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
    cell.builder.operator(Op.LSTM, [cell.slots[i] for i in range(5)], outputs, BASIC, 2)
    fed = [[cell.rng.integers(0, 256, (BATCH, INPUT)).astype(np.uint8)] for _ in range(RUNS)]
    return cell.builder.write(outputs[:results]), fed


def test_basic_uint8_lstm_equals_litert():
    check(*of_bytes(4))


def test_basic_uint8_lstm_on_the_gpu_equals_litert(gpu):
    file, fed = of_bytes(2)
    check_on_gpu([file], [fed], gpu)
