"""The values that a graph's integer inputs may have: rows of the tables that they index, or a mask.

Random integers in an input that holds indices would be out of range. What the graph does with such an input
often says its range: token ids name rows of an embedding, a mask becomes a truth value, a length is compared
with positions.
"""

from typing import Final

from runtime.model.graph import Operator, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import TensorType

_INTEGERS: Final = frozenset({TensorType.INT32, TensorType.INT64, TensorType.UINT32, TensorType.UINT64})

_KEEP_VALUES: Final = frozenset(
    {Op.RESHAPE, Op.EXPAND_DIMS, Op.SQUEEZE, Op.TRANSPOSE, Op.SLICE, Op.STRIDED_SLICE}
)
"""Operators that move the values of their first operand and leave them as they are."""

_COMPARE: Final = frozenset({Op.EQUAL, Op.NOT_EQUAL, Op.LESS, Op.LESS_EQUAL, Op.GREATER, Op.GREATER_EQUAL})

_TRUTH: Final = 1
"""The largest value of an input of which only the truth counts: masks are of zeros and ones."""


def integer_ranges(graph: Subgraph) -> dict[str, tuple[int, int]]:
    """Return the least and the largest value of each 32- and 64-bit integer input, by its name.

    An input is left out where it is quantised, where nothing reads it, and where an operator computes with
    its values in a way that tells no range.
    """
    found = {}
    for index in graph.inputs:
        tensor = graph.tensors[index]
        if tensor.type in _INTEGERS and tensor.quantization is None:
            most = _largest(graph, index)
            if most is not None:
                found[tensor.name] = (0, most)
    return found


def _largest(graph: Subgraph, index: int) -> int | None:
    """Return the largest value that every use of a tensor allows; None where a use does not tell."""
    rows: list[int] = []
    counts: list[int] = []
    waiting, seen = [index], {index}
    while waiting:
        one = waiting.pop()
        for operator in graph.operators:
            for place in (k for k, read in enumerate(operator.inputs) if read == one):
                if (table := _table(graph, operator, place)) is not None:
                    rows.append(table - 1)
                elif place == 0 and operator.opcode in _KEEP_VALUES:
                    waiting += [out for out in operator.outputs if out not in seen]
                    seen.update(operator.outputs)
                elif operator.opcode in _COMPARE and (other := _operand(graph, operator, 1 - place)):
                    counts.append(_compared(other))
                elif operator.opcode is Op.CAST and graph.tensors[operator.outputs[0]].type not in _INTEGERS:
                    counts.append(_TRUTH)
                else:
                    return None
    # A row must exist; beside that, what is compared or cast may have any value.
    return min(rows) if rows else max(counts, default=None)


def _table(graph: Subgraph, operator: Operator, place: int) -> int | None:
    """Return how many rows the table has whose rows this operand names; None where it names none."""
    axis: int
    if operator.opcode is Op.EMBEDDING_LOOKUP and place == 0:
        table, axis = _operand(graph, operator, 1), 0
    elif operator.opcode is Op.GATHER and place == 1:
        table, axis = _operand(graph, operator, 0), operator.options.get("axis", 0)
    else:
        return None
    return table.shape[axis] if table and -len(table.shape) <= axis < len(table.shape) else None


def _operand(graph: Subgraph, operator: Operator, place: int) -> Tensor | None:
    """Return an operand of an operator; None where the file leaves it out."""
    index = operator.inputs[place] if 0 <= place < len(operator.inputs) else -1
    return graph.tensors[index] if index >= 0 else None


def _compared(other: Tensor) -> int:
    """Return the largest value that changes a comparison: a length is compared with so many positions."""
    return max(other.shape[-1] if other.shape else 0, _TRUTH)
