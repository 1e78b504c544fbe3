"""Builds the graph of a partition: one node for each operator, in the form that its kernel family reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count

import numpy as np

from runtime.delegates.base import GraphFacts, Partition, Unsupported
from runtime.delegates.gpu.element_type import ElementType, ElementTypes, element_type
from runtime.delegates.gpu.epilogue import FUSED_ACTIVATIONS
from runtime.delegates.gpu.graph import Custom, Graph, Node, Step, Value
from runtime.delegates.gpu.lowering import families, family_for, kind_of
from runtime.delegates.gpu.lowering.spec import Family, NodeSpec, OperatorFacts
from runtime.delegates.gpu.weights import Stored, stored
from runtime.model.graph import Operator
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.support.registry import CUSTOM_SPECS, SPECS

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
    claims = families().get(kind_of(operator))
    if claims is None:
        return Unsupported("no OpenCL kernel for this operator")
    newest = _newest_version(operator)
    if operator.version > newest:
        # The words of LiteRT's delegate, for which users and their tools look.
        return Unsupported(f"Max version supported: {newest}. Requested version {operator.version}.")
    family = _family(facts, operator)
    if family is None:
        types = (element for claim in claims for element in claim.types_of(kind_of(operator)).of_input(0))
        return _refused(facts, operator, operator.inputs[0], _name(facts, operator.inputs[0]), _listed(types))
    return _tensor_refusal(facts, operator, family) or family.supports(OperatorFacts(operator, facts))


def _family(facts: GraphFacts, operator: Operator) -> Family | None:
    """The family that runs the operator, by the type of its first input where there are several."""
    first = operator.inputs[0] if operator.inputs else -1
    element = None if first < 0 else element_type(facts.subgraph.tensors[first].type)
    return family_for(kind_of(operator), element)


def _newest_version(operator: Operator) -> int:
    """The newest version whose rules are known: the CPU path's; 1 where that has no kernel."""
    kind = kind_of(operator)
    spec = CUSTOM_SPECS.get(kind.value) if isinstance(kind, Custom) else SPECS.get(kind)
    return 1 if spec is None else spec.max_version


def shorten(name: str, longest: int = 40) -> str:
    """A tensor's name for a message: converters write very long paths, whose end says most."""
    return name if len(name) <= longest else f"…{name[-longest:]}"


def _tensor_refusal(facts: GraphFacts, operator: Operator, family: Family) -> Unsupported | None:
    """The reason why a tensor keeps the operator on the CPU, before its family is asked.

    Families may then rely on the types that they know and on at least one element.
    """
    is_alike, chosen = family.types_of(kind_of(operator)).alike, dict[ElementTypes, tuple[int, ElementType]]()
    levels = {operator.inputs[i] for i in family.weights if i < len(operator.inputs)}
    for tensor, known, is_parameter in _places(operator, family):
        kind, is_constant = facts.subgraph.tensors[tensor].type, tensor in facts.constants
        if tensor in levels and _widens(facts, tensor):
            continue
        if is_parameter and is_constant:
            if kind in _PARAMETERS:
                continue
            return _refused(facts, operator, tensor, _name(facts, tensor), "a constant of int32 or int64")
        element = element_type(kind)
        half = kind is TensorType.FLOAT16 and not is_constant
        if half or element is None or element not in known:
            if is_parameter and kind in _PARAMETERS:
                found, limit = f"a computed {kind.name.lower()}", "a constant of int32 or int64"
            else:
                found, limit = _name(facts, tensor), _listed(known)
            return _refused(facts, operator, tensor, found, limit)
        first, wanted = chosen.setdefault(known, (tensor, element))
        if is_alike and element is not wanted:
            limit = f"{wanted.value} as of tensor {first}"
            return _refused(facts, operator, tensor, _name(facts, tensor), limit)
        if 0 in facts.shapes[tensor]:
            return Unsupported(f"tensor {tensor} has no elements")
    return None


def _widens(facts: GraphFacts, tensor: int) -> bool:
    """True for a constant of levels with scales, which kernels widen to float32."""
    codes = facts.constants.get(tensor)
    return codes is not None and codes.size > 0 and stored(facts.subgraph.tensors[tensor], codes) is not None


def _places(operator: Operator, family: Family) -> Iterator[tuple[int, ElementTypes, bool]]:
    """Each tensor with the types that it may have, and whether it may be a parameter."""
    types, parameters = family.types_of(kind_of(operator)), family.parameters_of(kind_of(operator))
    for position, tensor in enumerate(operator.inputs):
        if tensor >= 0:
            yield tensor, types.of_input(position), position in parameters
    for position, tensor in enumerate(operator.outputs):
        if tensor >= 0:
            yield tensor, types.of_output(position), False


def _name(facts: GraphFacts, tensor: int) -> str:
    return facts.subgraph.tensors[tensor].type.name.lower()


def _listed(types: Iterable[ElementType]) -> str:
    return " or ".join(element.value for element in types)


def _refused(facts: GraphFacts, operator: Operator, tensor: int, found: str, limit: str) -> Unsupported:
    name = shorten(facts.subgraph.tensors[tensor].name)
    return Unsupported(f"tensor {tensor} {name!r} is {found}, where {kind_of(operator).name} takes {limit}")


def build_graph(partition: Partition, *, is_narrow: bool = True) -> Graph:
    """The graph of a partition whose operators all passed `refusal`.

    Constants stay beside their float32 form as the file stores them where `is_narrow` is true.
    Raises ValueError where a tensor of a type that no kernel knows would become an operand.
    """
    facts = GraphFacts(partition.subgraph, partition.shapes, partition.dtypes, partition.constants)
    values: dict[int, Value] = {}
    kept = _stored_constants(partition)

    def value(tensor: int) -> int:
        if tensor not in values:
            known, data = partition.subgraph.tensors[tensor], partition.constants.get(tensor)
            found = kept.get(tensor)
            element = element_type(known.type) if found is None else ElementType.F32
            # Beside float32 stands what a DEQUANTIZE widened already.
            if found is not None and known.type is not TensorType.FLOAT32:
                data = found.widened()
            if element is None:
                raise ValueError(f"tensor {tensor} of type {known.type.name.lower()} cannot be an operand")
            if data is not None and data.dtype not in (element.dtype, np.float16):
                raise ValueError(f"constant {tensor} of type {data.dtype.name} is no {element.value}")
            data = None if data is None else np.asarray(data, element.dtype)
            shape = tuple(int(extent) for extent in partition.shapes[tensor])
            values[tensor] = Value(tensor, shape, known.name, data, element, found if is_narrow else None)
        return tensor

    contents: dict[int, int] = {}
    numbers = count(len(partition.subgraph.tensors))
    nodes = []
    for operator in partition.operators:
        if is_folded(facts, operator):
            continue
        kind, family = kind_of(operator), _family(facts, operator)
        if family is None:
            raise ValueError(f"no kernel family runs operator {operator.index}, {kind.name}")
        spec = family.read(OperatorFacts(operator, facts))
        # Operands of fused steps are not inputs of the node, so nothing below would register them.
        for step in spec.steps:
            for tensor in step.operands:
                value(tensor)
        name = spec.activation
        fused = () if name is None else (Step(FUSED_ACTIVATIONS.get(name, name)),)
        inputs = tuple(contents.get(t, value(t)) if t >= 0 else None for t in spec.inputs)
        outputs = [value(tensor) for tensor in operator.outputs]
        contents |= _updated(spec, outputs, values, numbers)
        nodes.append(
            Node(
                id=operator.index,
                op=kind,
                inputs=inputs,
                outputs=tuple(outputs),
                attributes=spec.attributes,
                epilogue=spec.steps + fused,
                sources=(operator.index,),
            )
        )
    for tensor in (*partition.inputs, *partition.outputs):
        value(tensor)
    results = (*partition.outputs, *contents.values())
    return Graph(values, tuple(nodes), partition.inputs, results, tuple(contents))


def _updated(
    spec: NodeSpec, outputs: list[int], values: dict[int, Value], numbers: Iterator[int]
) -> dict[int, int]:
    """Variable → the value that is its new content; the outputs that the operator lacks are added."""
    found = {}
    for tensor, position in spec.states.items():
        if position is None:
            outputs.append(next(numbers))
            values[outputs[-1]] = replace(values[tensor], id=outputs[-1])
        found[tensor] = outputs[-1 if position is None else position]
    return found


def _stored_constants(partition: Partition) -> dict[int, Stored]:
    """Tensor → what the file holds of a float32 constant: fp16, or what a DEQUANTIZE made it of."""
    tensors, constants = partition.subgraph.tensors, partition.constants
    sources = {tensor: tensor for tensor in constants}
    for operator in partition.subgraph.operators:
        if operator.opcode is BuiltinOperator.DEQUANTIZE and operator.outputs[0] in constants:
            sources[operator.outputs[0]] = operator.inputs[0]
    found = {t: stored(tensors[s], constants[s]) for t, s in sources.items() if s in constants}
    return {tensor: one for tensor, one in found.items() if one is not None}
