"""Builds the graph of a partition: one node for each operator, in the form that its kernel family reads."""

from __future__ import annotations

import numpy as np

from runtime.delegates.base import GraphFacts, Partition, Unsupported
from runtime.delegates.gpu.epilogue import FUSED_ACTIVATIONS
from runtime.delegates.gpu.graph import Graph, Node, Step, Value
from runtime.delegates.gpu.lowering import families, kind_of
from runtime.delegates.gpu.lowering.spec import OperatorFacts
from runtime.model.graph import Operator
from runtime.model.schema import TensorType

_FLOATS = frozenset({TensorType.FLOAT32, TensorType.FLOAT16})
"""Types of constants that enter the graph, as float32. Bits of any other type, levels among them, mean other
numbers than their bytes say."""

_PARAMETERS = frozenset({TensorType.INT32, TensorType.INT64})
"""Types of axes, paddings, shapes and the like, which lowering reads; they never enter the graph."""


def is_folded(facts: GraphFacts, operator: Operator) -> bool:
    """True for an operator whose results are constants already (DEQUANTIZE of fp16 weights).

    One without results (CALL_ONCE, ASSIGN_VARIABLE) acts on something else and is not.
    """
    return bool(operator.outputs) and all(output in facts.constants for output in operator.outputs)


def refusal(facts: GraphFacts, operator: Operator) -> Unsupported | None:
    """The reason why the delegate cannot run an operator, or None."""
    if is_folded(facts, operator):
        return None
    family = families().get(kind_of(operator))
    if family is None:
        return Unsupported("no OpenCL kernel for this operator")
    if operator.version > family.max_version:
        return Unsupported(f"version {operator.version} is newer than {family.max_version}, the newest known")
    return _tensor_refusal(facts, operator) or family.supports(OperatorFacts(operator, facts))


def shorten(name: str, longest: int = 40) -> str:
    """A tensor's name for a message: converters write very long paths, whose end says most."""
    return name if len(name) <= longest else f"…{name[-longest:]}"


def _tensor_refusal(facts: GraphFacts, operator: Operator) -> Unsupported | None:
    """The reason why a tensor keeps the operator on the CPU, before its family is asked.

    Families may then rely on float32 activations and on at least one element.
    """
    for tensor in (*operator.inputs, *operator.outputs):
        if tensor < 0 or tensor in facts.constants:
            continue
        if facts.subgraph.tensors[tensor].type is not TensorType.FLOAT32:
            return _type_refusal(facts, tensor, "tensors")
        if 0 in facts.shapes[tensor]:
            return Unsupported(f"tensor {tensor} has no elements")
    parameters = families()[kind_of(operator)].parameters
    for position, tensor in enumerate(operator.inputs):
        known = _PARAMETERS if position in parameters else _FLOATS
        if tensor in facts.constants and facts.subgraph.tensors[tensor].type not in known:
            return _type_refusal(facts, tensor, "constants")
    return None


def _type_refusal(facts: GraphFacts, tensor: int, what: str) -> Unsupported:
    kind, name = (
        facts.subgraph.tensors[tensor].type.name.lower(),
        shorten(facts.subgraph.tensors[tensor].name),
    )
    where = f"tensor {tensor} {name!r}"
    return Unsupported(f"{kind} {what} are not supported by the OpenCL delegate yet: {where}")


def build_graph(partition: Partition) -> Graph:
    """The graph of a partition whose operators all passed `refusal`.

    Raises ValueError where a constant that is neither float32 nor float16 would become an operand.
    """
    facts = GraphFacts(partition.subgraph, partition.shapes, partition.dtypes, partition.constants)
    values: dict[int, Value] = {}

    def value(tensor: int) -> int:
        if tensor not in values:
            data = partition.constants.get(tensor)
            if data is not None and data.dtype not in (np.float32, np.float16):
                raise ValueError(f"constant {tensor} of type {data.dtype.name} cannot be an operand")
            data = None if data is None else np.asarray(data, np.float32)
            shape = tuple(int(extent) for extent in partition.shapes[tensor])
            values[tensor] = Value(tensor, shape, partition.subgraph.tensors[tensor].name, data)
        return tensor

    nodes = []
    for operator in partition.operators:
        if is_folded(facts, operator):
            continue
        kind = kind_of(operator)
        spec = families()[kind].read(OperatorFacts(operator, facts))
        # Operands of fused steps are not inputs of the node, so nothing below would register them.
        for step in spec.steps:
            for tensor in step.operands:
                value(tensor)
        name = spec.activation
        fused = () if name is None else (Step(FUSED_ACTIVATIONS.get(name, name)),)
        nodes.append(
            Node(
                id=operator.index,
                op=kind,
                inputs=tuple(value(tensor) if tensor >= 0 else None for tensor in spec.inputs),
                outputs=tuple(value(tensor) for tensor in operator.outputs),
                attributes=spec.attributes,
                epilogue=spec.steps + fused,
                sources=(operator.index,),
            )
        )
    for tensor in (*partition.inputs, *partition.outputs):
        value(tensor)
    return Graph(values, tuple(nodes), partition.inputs, partition.outputs)
