"""The delegate `elementwise`: ADD, MUL and RELU on float32, computed a block of rows at a time.

A tensor `[..., C]` is a matrix of rows of C values. Neighbouring operators of one shape run on one block of
rows before the next block begins, so that a value is read again while it is still in the CPU's cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import groupby
from math import prod
from typing import Any, Final

import numpy as np

from delegate_farm.delegates import Array, DelegateDescriptor, GraphFacts, Option, Partition, Unsupported
from delegate_farm.model import ActivationFunctionType, BuiltinOperator, Operator

DESCRIPTOR: Final = DelegateDescriptor(
    name="elementwise",
    implementation="elementwise_delegate:ElementwiseDelegate",
    options={
        "rows": Option(
            value_type=int,
            minimum=1,
            maximum=1_000_000,
            default=256,
            help="How many rows are computed before the next operator runs on them.",
        ),
        "operators": Option(
            value_type=str,
            choices=("all", "arithmetic"),
            default="all",
            help="Which operators are taken: `arithmetic` leaves RELU to the interpreter.",
        ),
    },
    environment=lambda: {"elementwise_delegate": version("elementwise-delegate")},
)

_ARITHMETIC: Final = {BuiltinOperator.ADD: np.add, BuiltinOperator.MUL: np.multiply}
_ACTIVATIONS: Final = (ActivationFunctionType.NONE, ActivationFunctionType.RELU)


class ElementwiseDelegate:
    """A partition delegate. Raises `DelegateError` for an option that the descriptor does not allow."""

    name = "elementwise"
    max_delegated_partitions = 64

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = DESCRIPTOR.parse(options)

    def supports(self, graph: GraphFacts, operator: Operator) -> Unsupported | None:
        """Return None for an operator that this delegate runs, else the reason for the delegation report."""
        taken = {*_ARITHMETIC} | ({BuiltinOperator.RELU} if self._options["operators"] == "all" else set())
        if operator.opcode not in taken:
            return Unsupported("operator is not taken")
        tensors = [*operator.inputs, *operator.outputs]
        if any(graph.dtypes[tensor] != np.float32 for tensor in tensors):
            return Unsupported("a tensor is not float32")
        if _activation(operator) not in _ACTIVATIONS:
            return Unsupported(f"fused activation {_activation(operator).name}")
        shape = graph.shapes[operator.outputs[0]]
        if prod(shape) == 0:
            return Unsupported("the output is empty")
        if not all(_repeats(graph.shapes[tensor], shape) for tensor in operator.inputs):
            return Unsupported("an input is neither as large as the output nor one row nor one value")
        return None

    def compile(self, partition: Partition) -> CompiledElementwise:
        """Allocate what the partition keeps between its operators."""
        return CompiledElementwise(partition, self._options["rows"])

    def describe(self) -> Mapping[str, str]:
        """Return the settings that a result carries. `precision` chooses the tolerance of the judgement."""
        return {"precision": "fp32", **{name: str(value) for name, value in self._options.items()}}


class CompiledElementwise:
    """A partition, ready to run."""

    def __init__(self, partition: Partition, rows: int) -> None:
        self._partition = partition
        self._rows = rows
        crossing = {*partition.inputs, *partition.outputs}
        made = [tensor for operator in partition.operators for tensor in operator.outputs]
        inner = {t: np.empty(partition.shapes[t], np.float32) for t in made if t not in crossing}
        self._kept = {t: _matrix(array) for t, array in {**partition.constants, **inner}.items()}
        # Operators of one shape read no rows but their own, so they may share a loop over blocks.
        self._groups = [
            tuple(group)
            for _, group in groupby(partition.operators, lambda o: partition.shapes[o.outputs[0]])
        ]

    def invoke(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Fill `outputs` from `inputs`: dense float32 arrays in the order of the partition."""
        values = dict(self._kept)
        values.update(zip(self._partition.inputs, map(_matrix, inputs), strict=True))
        values.update(zip(self._partition.outputs, map(_matrix, outputs), strict=True))
        for group in self._groups:
            for start in range(0, len(values[group[0].outputs[0]]), self._rows):
                for operator in group:
                    _run(operator, values, slice(start, start + self._rows))

    def close(self) -> None:
        """Release the arrays between the operators."""
        self._kept.clear()


def _run(operator: Operator, values: Mapping[int, Array], block: slice) -> None:
    out = values[operator.outputs[0]][block]
    # A single row or value serves every block.
    given = [values[t] if len(values[t]) == 1 else values[t][block] for t in operator.inputs]
    if operator.opcode is BuiltinOperator.RELU:
        np.maximum(given[0], 0, out=out)
        return
    _ARITHMETIC[operator.opcode](*given, out=out)
    if _activation(operator) is ActivationFunctionType.RELU:
        np.maximum(out, 0, out=out)


def _activation(operator: Operator) -> ActivationFunctionType:
    return ActivationFunctionType(operator.options.get("fused_activation_function", 0))


def _repeats(shape: Sequence[int], output: Sequence[int]) -> bool:
    """Whether a tensor is as large as the output, one of its rows, or one value."""
    row = prod(shape) == prod(shape[-1:]) == prod(output[-1:])
    return tuple(shape) == tuple(output) or row or prod(shape) == 1


def _matrix(array: Array) -> Array:
    """Return a view `[rows, C]`. Of a dense array `reshape` never makes a copy, in which a result would be
    lost.
    """
    return array.reshape(-1, array.shape[-1] if array.ndim else 1)
