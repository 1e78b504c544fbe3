"""Multiply-accumulate operations of one invocation, from shapes alone.

Counted as is usual: one per product of a convolution, matrix product or recurrent step; element-wise
operators, pooling and data movement count nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from runtime.model.graph import Operator, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator

_Count: TypeAlias = Callable[[Operator, Sequence[Tensor | None], Sequence[Tensor]], int]


def macs_of(subgraph: Subgraph) -> int:
    """Return the sum over the operators; shapes are the file's, where a dynamic dimension counts as 1."""
    return sum(operator_macs(operator, subgraph) for operator in subgraph.operators)


def operator_macs(
    operator: Operator, subgraph: Subgraph, shapes: Mapping[int, tuple[int, ...]] | None = None
) -> int:
    """Return the operations of one operator; 0 for one that multiplies no matrices.

    `shapes` are those of the tensors where the file's do not hold, as in a resized model.
    """
    custom = operator.custom_code
    count = _COUNTS.get(operator.opcode) if custom is None else _CUSTOM_COUNTS.get(custom)
    if count is None:
        return 0

    def tensor(index: int) -> Tensor:
        found = subgraph.tensors[index]
        return found if shapes is None else replace(found, shape=shapes[index])

    inputs = [None if i < 0 else tensor(i) for i in operator.inputs]
    outputs = [tensor(i) for i in operator.outputs]
    try:
        return count(operator, inputs, outputs)
    except IndexError:
        return 0


def _convolution(_operator: Operator, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]) -> int:
    """Every output element is a sum over one filter `[O, H, W, I / groups]`."""
    return math.prod(_shape(outputs, 0)) * math.prod(_shape(inputs, 1)[1:])


def _depthwise(_operator: Operator, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]) -> int:
    return math.prod(_shape(outputs, 0)) * math.prod(_shape(inputs, 1)[1:3])


def _transposed(_operator: Operator, inputs: Sequence[Tensor | None], _outputs: Sequence[Tensor]) -> int:
    """Every input element is multiplied by a filter per output channel: `[O, H, W, I]`, `[D, H, W, O, I]`."""
    weights, data = _shape(inputs, 1), _shape(inputs, 2)
    return math.prod(data) * math.prod(weights[:-1])


def _transposed_with_bias(
    _operator: Operator, inputs: Sequence[Tensor | None], _outputs: Sequence[Tensor]
) -> int:
    data, weights = _shape(inputs, 0), _shape(inputs, 1)
    return math.prod(data) * math.prod(weights[:-1])


def _convolution_3d(_operator: Operator, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]) -> int:
    """Count the products of a 3-D convolution. Filters are `[D, H, W, I, O]`."""
    return math.prod(_shape(outputs, 0)) * math.prod(_shape(inputs, 1)[:-1])


def _fully_connected(_operator: Operator, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]) -> int:
    return math.prod(_shape(outputs, 0)) * _shape(inputs, 1)[1]


def _batch_matmul(operator: Operator, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]) -> int:
    depth = _shape(inputs, 0)[-2] if operator.options.get("adj_x") else _shape(inputs, 0)[-1]
    return math.prod(_shape(outputs, 0)) * depth


def _recurrent(_operator: Operator, inputs: Sequence[Tensor | None], _outputs: Sequence[Tensor]) -> int:
    """All constant matrices once for each step of each sequence."""
    steps = math.prod(_shape(inputs, 0)[:-1])
    return steps * sum(math.prod(t.shape) for t in inputs if t and t.is_constant and len(t.shape) == 2)


def _shape(tensors: Sequence[Tensor | None], i: int) -> tuple[int, ...]:
    found = tensors[i]
    return () if found is None else found.shape


_COUNTS: Final[Mapping[BuiltinOperator, _Count]] = {
    BuiltinOperator.CONV_2D: _convolution,
    BuiltinOperator.DEPTHWISE_CONV_2D: _depthwise,
    BuiltinOperator.TRANSPOSE_CONV: _transposed,
    BuiltinOperator.CONV_3D: _convolution_3d,
    BuiltinOperator.CONV_3D_TRANSPOSE: _transposed,
    BuiltinOperator.FULLY_CONNECTED: _fully_connected,
    BuiltinOperator.BATCH_MATMUL: _batch_matmul,
    BuiltinOperator.RNN: _recurrent,
    BuiltinOperator.LSTM: _recurrent,
    BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM: _recurrent,
    BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_RNN: _recurrent,
    BuiltinOperator.BIDIRECTIONAL_SEQUENCE_LSTM: _recurrent,
    BuiltinOperator.BIDIRECTIONAL_SEQUENCE_RNN: _recurrent,
    BuiltinOperator.SVDF: _recurrent,
}

_CUSTOM_COUNTS: Final[Mapping[str, _Count]] = {"Convolution2DTransposeBias": _transposed_with_bias}
