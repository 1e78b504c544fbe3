"""Small models that a device runs whole, and buffers for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from runtime.api.compiled_model import CompiledModel
from runtime.api.gpu_options import GpuOptions
from runtime.api.hardware_accelerator import HardwareAccelerator
from runtime.api.options import Options
from runtime.api.tensor_buffer import TensorBuffer
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Builder

SHAPE = (8, 48)
"""A multiple of 16 channels, so that no kernel packs rows."""
SIZE = 4 * 8 * 48
WEIGHTS = np.random.default_rng(7).normal(0, 0.1, (48, 48)).astype(np.float32)
X = np.random.default_rng(8).normal(size=SHAPE).astype(np.float32)


def expected(x: np.ndarray, times: int = 2) -> np.ndarray:
    """Compute the result of `dense`."""
    return x if times == 0 else expected(np.tanh(x @ WEIGHTS.T), times - 1)


EXPECTED = expected(X)


def dense(rows: int = 8, weights: np.ndarray = WEIGHTS, times: int = 2) -> bytes:
    """Build a product and a tanh of it, which are one launch, `times` times: two make a persistent kernel."""
    b = Builder()
    shape = (rows, len(weights))
    value = b.input(np.float32, shape)
    constant = b.constant(weights)
    for _ in range(times):
        y, z = b.tensor(np.float32, shape), b.tensor(np.float32, shape)
        b.operator(Op.FULLY_CONNECTED, [value, constant], [y])
        b.operator(Op.TANH, [y], [z])
        value = z
    return b.write([value])


def on_gpu(model: bytes, **options: Any) -> CompiledModel:
    """Compile the model on the device alone, without timings."""
    gpu = GpuOptions(delegate_options={"tuning": "none", "persistent": "off", **options})
    return CompiledModel.from_buffer(model, options=Options(HardwareAccelerator.GPU, gpu_options=gpu))


def filled(buffer: TensorBuffer, values: np.ndarray = X) -> TensorBuffer:
    """Fill the buffer with these values and return it."""
    buffer.write(values)
    return buffer


def results(buffer: TensorBuffer) -> np.ndarray:
    """Return the contents of an output, once it is there."""
    return buffer.read(X.size, np.float32).reshape(SHAPE)
