"""Two small models: one that the gpu delegate takes only in part, one with an operator our kernels lack."""

from __future__ import annotations

import numpy as np

from runtime.model.graph import Model, Operator, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.writer import write_model

SHAPE = (1, 8, 8, 16)


def _float(index: int, name: str, shape: tuple[int, ...] = SHAPE) -> Tensor:
    return Tensor(index, name, TensorType.FLOAT32, shape)


def _constant(index: int, name: str, values: np.ndarray) -> Tensor:
    kind = TensorType.INT32 if values.dtype == np.int32 else TensorType.FLOAT32
    return Tensor(index, name, kind, values.shape, buffer=index + 1, data=memoryview(values.tobytes()))


def _model(tensors: tuple[Tensor, ...], operators: tuple[Operator, ...], output: int) -> bytes:
    return write_model(Model(3, "", (Subgraph(0, "main", tensors, (0,), (output,), operators),)))


def partial_model() -> bytes:
    """MUL, RELU, REVERSE_SEQUENCE along the rows, ADD: the gpu delegate leaves the third to the CPU."""
    rng = np.random.default_rng(7)
    tensors = (
        _float(0, "image"),
        _constant(1, "gain", rng.uniform(0.5, 2, 16).astype(np.float32)),
        _float(2, "scaled"),
        _float(3, "positive"),
        _constant(4, "lengths", np.array([3], np.int32)),
        _float(5, "turned"),
        _constant(6, "offset", rng.uniform(-1, 1, 16).astype(np.float32)),
        _float(7, "out"),
    )
    operators = (
        Operator(0, BuiltinOperator.MUL, 1, (0, 1), (2,)),
        Operator(1, BuiltinOperator.RELU, 1, (2,), (3,)),
        Operator(2, BuiltinOperator.REVERSE_SEQUENCE, 1, (3, 4), (5,), {"seq_dim": 1, "batch_dim": 0}),
        Operator(3, BuiltinOperator.ADD, 1, (5, 6), (7,)),
    )
    return _model(tensors, operators, 7)


def lacking_operator_model() -> bytes:
    """RELU, then a custom operator that nobody registered."""
    tensors = (_float(0, "image"), _float(1, "positive"), _float(2, "out"))
    operators = (
        Operator(0, BuiltinOperator.RELU, 1, (0,), (1,)),
        Operator(1, BuiltinOperator.CUSTOM, 1, (1,), (2,), custom_code="Blur"),
    )
    return _model(tensors, operators, 2)
