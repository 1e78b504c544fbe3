"""Classifies a model's arithmetic and finds its state: both decide how its outputs can be judged."""

from enum import StrEnum

from runtime.model.graph import Model, Operator, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType

_FLOATS = {TensorType.FLOAT32, TensorType.FLOAT16, TensorType.FLOAT64, TensorType.BFLOAT16}
_SMALL_INTEGERS = {TensorType.INT4, TensorType.INT8, TensorType.UINT8, TensorType.INT16}


_STATEFUL = {
    BuiltinOperator.VAR_HANDLE,
    BuiltinOperator.RANDOM_UNIFORM,
    BuiltinOperator.RANDOM_STANDARD_NORMAL,
    BuiltinOperator.MULTINOMIAL,
}
"""Operators behind which an equal input may give another output; RNNs and LSTMs have variable tensors."""


class Arithmetic(StrEnum):
    """The arithmetic of a model, by which its rule is chosen."""

    FLOAT = "float"
    INTEGER = "integer"
    MIXED = "mixed"


def arithmetic_of(model: Model) -> Arithmetic:
    """Return whether a model computes in floats, in integers only, or in both (hybrid weights included).

    A leading QUANTIZE and a trailing DEQUANTIZE do not make an integer model mixed.
    """
    quantised = any(_is_quantised_activation(t) for t in model.subgraphs[0].tensors)
    if not quantised and not any(_is_hybrid(model.subgraphs[0], op) for op in model.subgraphs[0].operators):
        return Arithmetic.FLOAT
    if quantised and not _has_float_arithmetic(model.subgraphs[0]):
        return Arithmetic.INTEGER
    return Arithmetic.MIXED


def _is_quantised_activation(tensor: Tensor) -> bool:
    return not tensor.is_constant and tensor.type in _SMALL_INTEGERS and _has_scale(tensor)


def _has_scale(tensor: Tensor) -> bool:
    return tensor.quantization is not None and len(tensor.quantization.scales) > 0


def _is_hybrid(graph: Subgraph, op: Operator) -> bool:
    """Return whether an operator multiplies float activations by stored integers.

    DEQUANTIZE does not: its constant is unpacked once.
    """
    if op.opcode == BuiltinOperator.DEQUANTIZE:
        return False
    inputs = [graph.tensors[i] for i in op.inputs if i >= 0]
    stored = any(t.is_constant and t.type in _SMALL_INTEGERS and _has_scale(t) for t in inputs)
    return stored and any(not t.is_constant and t.type in _FLOATS for t in inputs)


def _has_float_arithmetic(graph: Subgraph) -> bool:
    """Return whether any operator but QUANTIZE and DEQUANTIZE reads or writes a float activation."""
    conversions = (BuiltinOperator.QUANTIZE, BuiltinOperator.DEQUANTIZE)
    return any(
        graph.tensors[i].type in _FLOATS and not graph.tensors[i].is_constant
        for op in graph.operators
        if op.opcode not in conversions
        for i in (*op.inputs, *op.outputs)
        if i >= 0
    )


def keeps_state(model: Model) -> bool:
    """Return whether an output may depend on earlier invokes: the model has variables or draws numbers."""
    return any(
        any(tensor.is_variable for tensor in graph.tensors)
        or any(op.opcode in _STATEFUL for op in graph.operators)
        for graph in model.subgraphs
    )
