"""Static shapes of every tensor, and the values of those that are known before the first invocation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from runtime.delegates.base import GraphFacts
from runtime.errors import UnsupportedOperatorError
from runtime.model.graph import Operator, Subgraph
from runtime.ops.spec import (
    MAX_TENSOR_BYTES,
    Array,
    OpContext,
    Scratch,
    Shape,
    Value,
    constant_array,
    dtype_of,
    evaluate,
    find_spec,
)

MAX_FOLDED_BYTES = 512 << 20


@dataclass(slots=True)
class GraphValues:
    """What planning knows of a subgraph's tensors, by tensor index.

    `folded` are the operators whose results are in `constants`; `missing` holds, by operator index, why the
    CPU path cannot run an operator (its outputs then have the shapes that the file declares).
    """

    subgraph: Subgraph
    input_shapes: Mapping[int, Shape]
    shapes: dict[int, Shape] = field(default_factory=dict)
    constants: dict[int, Array] = field(default_factory=dict)
    folded: set[int] = field(default_factory=set)
    missing: dict[int, UnsupportedOperatorError] = field(default_factory=dict)

    def value(self, index: int, array: Array | None = None) -> Value:
        """Tensor `index` as an operator sees it."""
        tensor = self.subgraph.tensors[index]
        return Value(
            index=index,
            name=tensor.name,
            type=tensor.type,
            shape=self.shapes[index],
            quantization=tensor.quantization,
            constant=self.constants.get(index),
            array=array,
        )

    def context(
        self, operator: Operator, arrays: Mapping[int, Array], scratch: Scratch | None = None
    ) -> OpContext:
        """An operator with its inputs and outputs, bound where `arrays` has them."""
        inputs = tuple(None if i < 0 else self.value(i, arrays.get(i)) for i in operator.inputs)
        outputs = tuple(self.value(i, arrays.get(i)) for i in operator.outputs)
        return OpContext(operator, inputs, outputs, scratch)

    def facts(self) -> GraphFacts:
        """What a delegate may look at."""
        unknown = np.dtype(object)
        dtypes = {t.index: dtype_of(t.type) or unknown for t in self.subgraph.tensors}
        return GraphFacts(self.subgraph, self.shapes, dtypes, self.constants)


def infer(subgraph: Subgraph, input_shapes: Mapping[int, Shape]) -> GraphValues:
    """Walk the operators in order. Raises `ShapeError` where shapes do not fit together."""
    values = GraphValues(subgraph, dict(input_shapes))
    for tensor in subgraph.tensors:
        values.shapes[tensor.index] = input_shapes.get(tensor.index, tensor.shape)
        constant = constant_array(tensor)
        if constant is not None:
            values.constants[tensor.index] = constant
    for operator in subgraph.operators:
        try:
            _infer_operator(values, operator)
        except UnsupportedOperatorError as error:
            values.missing[operator.index] = error
    return values


def _infer_operator(values: GraphValues, operator: Operator) -> None:
    spec = find_spec(operator)
    context = values.context(operator, {})
    shapes = spec.infer(context)
    if len(shapes) != len(operator.outputs):
        raise context.error(f"{len(operator.outputs)} outputs where {len(shapes)} are expected")
    for index, shape in zip(operator.outputs, shapes, strict=True):
        _check_size(context, dtype_of(values.subgraph.tensors[index].type), shape)
        values.shapes[index] = shape
    known = all(i < 0 or i in values.constants for i in operator.inputs)
    if operator.outputs and (known or spec.shape_only):
        _fold(values, operator)


def _check_size(op: OpContext, dtype: np.dtype[Any] | None, shape: Shape) -> None:
    if math.prod(shape) * (dtype.itemsize if dtype else 1) > MAX_TENSOR_BYTES:
        raise op.error(f"an output of shape {list(shape)} is too large to plan")


def _fold(values: GraphValues, operator: Operator) -> None:
    """Keep the operator's results, unless they are large enough to be better computed at run time."""
    context = values.context(operator, {})
    sizes = (math.prod(v.shape) * v.dtype.itemsize if v.dtype else MAX_FOLDED_BYTES for v in context.outputs)
    if max(sizes, default=0) >= MAX_FOLDED_BYTES:
        return
    results = evaluate(operator, context.inputs, context.outputs)
    values.constants.update(zip(operator.outputs, results, strict=True))
    values.folded.add(operator.index)
