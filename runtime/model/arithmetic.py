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
"""(operator, inputs, outputs): returns its products."""


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
    # A file may give an operator fewer inputs or dimensions than its kind needs; only running it refuses
    # that.
    except IndexError:
        return 0


def _shape(tensors: Sequence[Tensor | None], i: int) -> tuple[int, ...]:
    found = tensors[i]
    return () if found is None else found.shape


def _size(tensors: Sequence[Tensor | None], i: int, *span: int | None) -> int:
    """Return the elements of a tensor, along the dimensions of a slice."""
    return math.prod(_shape(tensors, i)[slice(*span)] if span else _shape(tensors, i))


def _batch_matmul(operator: Operator, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]) -> int:
    return _size(outputs, 0) * _shape(inputs, 0)[-2 if operator.options.get("adj_x") else -1]


def _recurrent(_operator: Operator, inputs: Sequence[Tensor | None], _outputs: Sequence[Tensor]) -> int:
    """All constant matrices once for each step of each sequence."""
    steps = _size(inputs, 0, -1)
    return steps * sum(math.prod(t.shape) for t in inputs if t and t.is_constant and len(t.shape) == 2)


# Every output element of a convolution is a sum over one filter, [O, H, W, I / groups] or [D, H, W, I, O].
# In a transposed one every input element is multiplied by a filter for each output channel.
_COUNTS: Final[Mapping[BuiltinOperator, _Count]] = {
    BuiltinOperator.CONV_2D: lambda _, x, y: _size(y, 0) * _size(x, 1, 1, None),
    BuiltinOperator.DEPTHWISE_CONV_2D: lambda _, x, y: _size(y, 0) * _size(x, 1, 1, 3),
    BuiltinOperator.CONV_3D: lambda _, x, y: _size(y, 0) * _size(x, 1, -1),
    BuiltinOperator.TRANSPOSE_CONV: lambda _, x, _y: _size(x, 2) * _size(x, 1, -1),
    BuiltinOperator.CONV_3D_TRANSPOSE: lambda _, x, _y: _size(x, 2) * _size(x, 1, -1),
    BuiltinOperator.FULLY_CONNECTED: lambda _, x, y: _size(y, 0) * _shape(x, 1)[1],
    BuiltinOperator.BATCH_MATMUL: _batch_matmul,
    **dict.fromkeys(
        (
            BuiltinOperator.RNN, BuiltinOperator.LSTM, BuiltinOperator.SVDF,
            BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM, BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_RNN,
            BuiltinOperator.BIDIRECTIONAL_SEQUENCE_LSTM, BuiltinOperator.BIDIRECTIONAL_SEQUENCE_RNN,
        ),
        _recurrent,
    ),
}  # fmt: skip

_CUSTOM_COUNTS: Final[Mapping[str, _Count]] = {
    "Convolution2DTransposeBias": lambda _, x, _y: _size(x, 0) * _size(x, 1, -1)
}
