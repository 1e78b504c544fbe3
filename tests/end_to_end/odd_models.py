"""Three small models: one of integers, one that the gpu delegate takes only in part, and one with an operator
that our kernels lack.
"""

from __future__ import annotations

import numpy as np

from runtime.model.graph import Model, Operator, Subgraph, Tensor
from runtime.model.schema import ActivationFunctionType, BuiltinOperator, Padding, TensorType
from runtime.model.writer import write_model
from runtime.tools.skeleton import strip
from tests.runtime.models import Builder, per_channel, per_tensor

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


def quantised_skeleton() -> bytes:
    """Return the skeleton of two convolutions of int8, each of which halves height and width."""
    b, random = Builder(), np.random.default_rng(8)
    options = {"padding": Padding.SAME, "stride_w": 2, "stride_h": 2}
    options |= {"dilation_w_factor": 1, "dilation_h_factor": 1}
    options["fused_activation_function"] = ActivationFunctionType.RELU
    side, channels, scale = 32, 3, 0.02
    value = b.input(np.int8, (1, side, side, channels), per_tensor(scale), name="image")
    for count, step in ((16, 0.05), (32, 0.1)):
        side //= 2
        steps = np.full(count, 0.005)
        weights = random.integers(-127, 128, (count, 3, 3, channels), np.int8)
        bias = random.integers(-3000, 3000, count).astype(np.int32)
        operands = [
            value, b.constant(weights, per_channel(steps)), b.constant(bias, per_channel(scale * steps)),
        ]  # fmt: skip
        channels, scale = count, step
        value = b.tensor(np.int8, (1, side, side, count), per_tensor(scale, -128))
        b.operator(BuiltinOperator.CONV_2D, operands, [value], options, version=3)
    return strip(b.write([value])).skeleton()
