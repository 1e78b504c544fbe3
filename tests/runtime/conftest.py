"""A small model as a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from runtime.model.graph import Model, Operator, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.writer import write_model


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """relu(x * gain), float32 [1, 4, 4, 8]."""
    gain = np.linspace(-1, 1, 8, dtype=np.float32)
    shape = (1, 4, 4, 8)
    tensors = (
        Tensor(0, "x", TensorType.FLOAT32, shape),
        Tensor(1, "gain", TensorType.FLOAT32, (8,), buffer=1, data=memoryview(gain.tobytes())),
        Tensor(2, "scaled", TensorType.FLOAT32, shape),
        Tensor(3, "y", TensorType.FLOAT32, shape),
    )
    operators = (
        Operator(0, BuiltinOperator.MUL, 1, (0, 1), (2,)),
        Operator(1, BuiltinOperator.RELU, 1, (2,), (3,)),
    )
    path = tmp_path_factory.mktemp("small") / "small.tflite"
    path.write_bytes(write_model(Model(3, "", (Subgraph(0, "main", tensors, (0,), (3,), operators),))))
    return path
