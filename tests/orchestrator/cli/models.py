"""Small `.tflite` files that run in microseconds."""

from __future__ import annotations

from runtime.model.graph import Model, Operator, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.writer import write_model


def unary_model(opcode: BuiltinOperator = BuiltinOperator.RELU, size: int = 4096) -> bytes:
    """One float operator on a vector [1, size]."""
    tensors = (
        Tensor(0, "input", TensorType.FLOAT32, (1, size)),
        Tensor(1, "output", TensorType.FLOAT32, (1, size)),
    )
    operator = Operator(index=0, opcode=opcode, version=1, inputs=(0,), outputs=(1,))
    graph = Subgraph(0, "main", tensors, (0,), (1,), (operator,))
    return write_model(Model(version=3, description="", subgraphs=(graph,)))
