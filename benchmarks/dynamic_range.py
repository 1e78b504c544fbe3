"""A float model with the weights of its fully connected layers in int8: a converter's dynamic range."""

from dataclasses import replace
from typing import Final

import numpy as np

from runtime.model.graph import Quantization, Subgraph, Tensor
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.writer import write_model

_HYBRID_VERSION: Final = 12
"""Version of FULLY_CONNECTED with float inputs and int8 weights, one scale an output."""

_LEAST_ELEMENTS: Final = 1024
"""Elements of weights below which a converter leaves them as they are."""


def dynamic_range(data: bytes) -> bytes:
    """Return the model with int8 weights; the activations are quantised while it runs."""
    model = read_model(data)
    return write_model(replace(model, subgraphs=tuple(map(_quantised, model.subgraphs))))


def _quantised(graph: Subgraph) -> Subgraph:
    layers = {
        op.index: op.inputs[1] for op in graph.operators if op.opcode is BuiltinOperator.FULLY_CONNECTED
    }
    fits = {op: index for op, index in layers.items() if _fits(graph.tensors[index])}
    chosen = set(fits.values())
    return replace(
        graph,
        tensors=tuple(_in_int8(t) if t.index in chosen else t for t in graph.tensors),
        operators=tuple(
            replace(op, version=_HYBRID_VERSION) if op.index in fits else op for op in graph.operators
        ),
    )


def _fits(tensor: Tensor) -> bool:
    is_large = int(np.prod(tensor.shape)) >= _LEAST_ELEMENTS
    return tensor.is_constant and tensor.type is TensorType.FLOAT32 and is_large


def _in_int8(tensor: Tensor) -> Tensor:
    assert tensor.data is not None
    values = np.frombuffer(tensor.data, np.float32).reshape(tensor.shape)
    # LiteRT's weights in int8 are symmetric: -127 to 127, with the zero point 0.
    # An output whose weights are all 0 needs a scale above 0, too.
    scales = np.maximum(np.abs(values).max(axis=1), 1e-12) / 127
    stored = np.rint(values / scales[:, None]).astype(np.int8)
    quantization = Quantization(tuple(scales.tolist()), (0,) * len(scales))
    data = memoryview(stored.tobytes())
    return replace(tensor, type=TensorType.INT8, data=data, buffer=0, quantization=quantization)
