"""Moves models and inputs by less than an honest delegate does, to make a yardstick.

A network may amplify a rounding. How far shows where its inputs, or constants, are moved by a little, and
where its weights are rounded to a narrow type.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.base import Array
from runtime.errors import FarmRuntimeError
from runtime.judge.bounds import MOVE
from runtime.model.graph import Model, Quantization, Subgraph, Tensor
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.writer import write_model

_SEED: Final = 20_261_123
"""Seed of the directions in which values are moved, and of the factors of rounded weights. Any would do."""

_PRODUCTS: Final = frozenset(
    {
        BuiltinOperator.CONV_2D,
        BuiltinOperator.DEPTHWISE_CONV_2D,
        BuiltinOperator.TRANSPOSE_CONV,
        BuiltinOperator.CONV_3D,
        BuiltinOperator.FULLY_CONNECTED,
        BuiltinOperator.BATCH_MATMUL,
        BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM,
        BuiltinOperator.LSTM,
        BuiltinOperator.SVDF,
    }
)
"""Operators whose weights delegates keep in narrow types."""

_BF16_MANTISSAS: Final = 2.0**8
"""Steps of bfloat16 in a range of mantissas of length 1."""

_Values = NDArray[np.float64]
_Change = Callable[[_Values], _Values]


class NothingToMoveError(FarmRuntimeError, ValueError):
    """A model has no constant that can be moved or rounded, so that the draw would be no other one."""


def moved_inputs(values: tuple[Array, ...]) -> tuple[Array, ...]:
    """Return inputs of which each float is moved by `MOVE`, up or down."""
    signs = np.random.Generator(np.random.PCG64(_SEED))
    return tuple(_moved(value, signs) if value.dtype.kind == "f" else value for value in values)


def moved_constants(data: bytes) -> bytes:
    """Return a model whose weights, or their scales, are moved by `MOVE`. Raises `NothingToMoveError`."""
    signs = np.random.Generator(np.random.PCG64(_SEED))
    return _changed(data, lambda values: values * (1 + MOVE * signs.choice((-1.0, 1.0), values.shape)))


def rounded_constants(data: bytes, precision: str, draw: int) -> bytes:
    """Return a model whose weights were rounded to `fp16` or `bf16`. Raises `NothingToMoveError`.

    Draw 0 rounds them to the nearest as they are; any other one as if each had been scaled before, which
    folding a normalisation into them does: as honest, and another error of the same size.
    """
    factors = np.random.Generator(np.random.PCG64(_SEED + draw))

    def change(values: _Values) -> _Values:
        scale = factors.uniform(1.0, 2.0, values.shape) if draw else np.ones(1)
        return rounded(values * scale, precision) / scale

    return _changed(data, change)


def rounded(values: _Values, precision: str) -> _Values:
    """Return values rounded to the nearest of a narrow type; what is beyond its range is held to it."""
    if precision == "fp16":
        most = float(np.finfo(np.float16).max)
        return np.clip(values, -most, most).astype(np.float16).astype(np.float64)
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.rint(mantissa * _BF16_MANTISSAS) / _BF16_MANTISSAS, exponent)


def _moved(value: Array, signs: np.random.Generator) -> Array:
    return (value * (1 + MOVE * signs.choice((-1.0, 1.0), value.shape))).astype(value.dtype)


def _changed(data: bytes, change: _Change) -> bytes:
    model = read_model(data)
    graphs = [_with_changed_weights(graph, change) for graph in model.subgraphs]
    if all(new is old for new, old in zip(graphs, model.subgraphs, strict=True)):
        raise NothingToMoveError("the model has no weights of a product that could be moved")
    return write_model(_with(model, graphs))


def _with(model: Model, graphs: list[Subgraph]) -> Model:
    return replace(model, subgraphs=tuple(graphs))


def _with_changed_weights(graph: Subgraph, change: _Change) -> Subgraph:
    chosen = set(_weights(graph))
    if not chosen:
        return graph
    # Constants that share a buffer in the file stay equal only where all of them are changed alike: each
    # changed one gets a buffer of its own.
    tensors = tuple(
        _changed_tensor(tensor, change) if tensor.index in chosen else tensor for tensor in graph.tensors
    )
    return replace(graph, tensors=tensors)


def _weights(graph: Subgraph) -> Iterator[int]:
    """Yield the constants by which products multiply, also those that are unpacked before."""
    made_by = {o: op for op in graph.operators for o in op.outputs}
    for op in graph.operators:
        if op.opcode not in _PRODUCTS:
            continue
        for index in op.inputs:
            unpacked = made_by.get(index)
            if unpacked is not None and unpacked.opcode is BuiltinOperator.DEQUANTIZE:
                index = unpacked.inputs[0]  # noqa: PLW2901  # the constant behind it
            if index >= 0 and _can_change(graph.tensors[index]):
                yield index


def _can_change(tensor: Tensor) -> bool:
    # With fewer than two axes it is a bias.
    if tensor.data is None or tensor.sparsity is not None or tensor.external_buffer or len(tensor.shape) < 2:
        return False
    if tensor.type in (TensorType.FLOAT32, TensorType.FLOAT16):
        return True
    quantization = tensor.quantization
    return quantization is not None and bool(quantization.scales) and quantization.blocks is None


def _changed_tensor(tensor: Tensor, change: _Change) -> Tensor:
    if tensor.type in (TensorType.FLOAT32, TensorType.FLOAT16):
        assert tensor.data is not None
        dtype: Any = np.float32 if tensor.type is TensorType.FLOAT32 else np.float16
        values = change(np.frombuffer(tensor.data, dtype).astype(np.float64)).astype(dtype)
        return replace(tensor, data=memoryview(values.tobytes()), buffer=0)
    quantization = tensor.quantization
    assert isinstance(quantization, Quantization)
    scales = change(np.array(quantization.scales, np.float64)).astype(np.float32)
    return replace(tensor, quantization=replace(quantization, scales=tuple(scales.tolist())))
