"""Builds the graph of a partition: one node for each operator, in the form that its kernel family reads."""

from __future__ import annotations

import numpy as np

from runtime.delegates.base import GraphFacts, Partition, Unsupported
from runtime.delegates.opencl.graph import Graph, Node, Step, Value
from runtime.delegates.opencl.lowering import families
from runtime.delegates.opencl.lowering.spec import OperatorFacts
from runtime.model.graph import Operator

_FLOATS = (np.dtype(np.float32), np.dtype(np.float16))
"""Types of constants that enter the graph as float32; integers (axes, paddings, shapes) stay what they
are."""


def is_folded(facts: GraphFacts, operator: Operator) -> bool:
    """True for an operator whose results are constants already (DEQUANTIZE of fp16 weights)."""
    return all(output in facts.constants for output in operator.outputs)


def refusal(facts: GraphFacts, operator: Operator) -> Unsupported | None:
    """The reason why the delegate cannot run an operator, or None."""
    if is_folded(facts, operator):
        return None
    family = families().get(operator.opcode)
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
        dtype = facts.dtypes[tensor]
        if dtype != np.float32:
            name = shorten(facts.subgraph.tensors[tensor].name)
            return Unsupported(
                f"{dtype.name} tensors are not supported by the OpenCL delegate yet: tensor {tensor} {name!r}"
            )
        if 0 in facts.shapes[tensor]:
            return Unsupported(f"tensor {tensor} has no elements")
    for tensor in operator.inputs:
        if tensor in facts.constants and facts.constants[tensor].dtype.kind == "i":
            dtype = facts.dtypes[tensor]
            if dtype.itemsize == 1:
                return Unsupported(f"{dtype.name} constants are not supported by the OpenCL delegate yet")
    return None


def build_graph(partition: Partition) -> Graph:
    """The graph of a partition whose operators all passed `refusal`."""
    facts = GraphFacts(partition.subgraph, partition.shapes, partition.dtypes, partition.constants)
    values: dict[int, Value] = {}

    def value(tensor: int) -> int:
        if tensor not in values:
            data = partition.constants.get(tensor)
            if data is not None:
                data = np.asarray(data, np.float32) if data.dtype in _FLOATS else data
            shape = tuple(int(extent) for extent in partition.shapes[tensor])
            values[tensor] = Value(tensor, shape, partition.subgraph.tensors[tensor].name, data)
        return tensor

    nodes = []
    for operator in partition.operators:
        if is_folded(facts, operator):
            continue
        spec = families()[operator.opcode].read(OperatorFacts(operator, facts))
        # Operands of fused steps are not inputs of the node, so nothing below would register them.
        for step in spec.steps:
            for tensor in step.operands:
                value(tensor)
        fused = () if spec.activation == "NONE" else (Step(spec.activation),)
        nodes.append(
            Node(
                id=operator.index,
                op=operator.opcode,
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
