"""Builds the graph of a partition: one node for each operator, in the form that its kernel family reads."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from runtime.delegates.base import GraphFacts, Partition
from runtime.delegates.gpu.graph.element_type import ElementType, element_type
from runtime.delegates.gpu.graph.epilogue import FUSED_ACTIVATIONS, Levels, rounded
from runtime.delegates.gpu.graph.graph import Graph, Node, Step, Value
from runtime.delegates.gpu.graph.simulation import Quantised
from runtime.delegates.gpu.graph.weights import Stored, WeightType
from runtime.delegates.gpu.lowering.spec import NodeSpec, OperatorFacts
from runtime.delegates.gpu.lowering.treatment import Treated, Treatment, treatment_of
from runtime.model.graph import Operator
from runtime.model.schema import BuiltinOperator


def build_graph(partition: Partition, *, is_narrow: bool = True, way: Quantised = Quantised.REAL) -> Graph:
    """Build the graph of a partition whose operators all passed `refusal`.

    Constants stay beside their float32 form as the file stores them where `is_narrow` is true. Else their
    stored form is float32 too, which lets the same kernels be chosen for them.
    Raises ValueError where a tensor of a type that no kernel knows would become an operand.
    """
    facts = GraphFacts(partition.subgraph, partition.shapes, partition.dtypes, partition.constants)
    treatment = treatment_of(facts, partition.operators, way)
    if not is_narrow:
        wide = {tensor: Stored(WeightType.F32, one.widened()) for tensor, one in treatment.stored.items()}
        treatment = replace(treatment, stored=wide)
    return _built(treatment, partition.inputs, partition.outputs)


def graph_of_one(facts: GraphFacts, operator: Operator, way: Quantised = Quantised.REAL) -> Graph:
    """Build the graph of an operator that passed `refusal`, as if it were a partition."""
    treatment = replace(treatment_of(facts, [operator], way), stored={})
    read = dict.fromkeys(t for t in operator.inputs if t >= 0 and t not in facts.constants)
    return _built(treatment, tuple(read), tuple(t for t in operator.outputs if t >= 0))


def _built(treatment: Treatment, read: Sequence[int], written: Sequence[int]) -> Graph:
    building = _Building(treatment)
    for operator in treatment.operators:
        building.add(operator)
    return building.finished(read, written)


class _Building:
    """A graph under construction. A value's id is its tensor's index; those behind have no tensor.

    A tensor enters in the type in which the first operator has it; `forms` are its values of other types.
    """

    def __init__(self, treatment: Treatment) -> None:
        self.facts = treatment.facts
        self.levels = treatment.levels
        self.stored_constants = treatment.stored
        self.values: dict[int, Value] = {}
        self.nodes: list[Node] = []
        self.contents: dict[int, int] = {}
        self.forms: dict[tuple[int, ElementType], int] = {}
        self.fresh_values = count(len(self.facts.subgraph.tensors))
        self.fresh_nodes = count(len(self.facts.subgraph.operators))

    def add(self, treated: Treated) -> None:
        """Add the operator's node, and nodes that round the results that it does not round itself."""
        operator, family, seen = treated.operator, treated.family, treated.facts
        spec = family.read(seen)
        # Operands of fused steps are not inputs of the node, so nothing else would register them.
        operands = (tensor for step in spec.steps for tensor in step.operands)
        for tensor in (*spec.inputs, *operator.outputs, *operands):
            if tensor >= 0:
                self._register(tensor, seen.types[tensor], seen.graph)
        steps = tuple(
            replace(step, operands=tuple(self._read(t, seen, operator) for t in step.operands))
            for step in _steps(spec)
        )
        inputs = tuple(self._read(t, seen, operator) if t >= 0 else None for t in spec.inputs)
        outputs, behind = list(operator.outputs), list[Node]()
        for position, (tensor, rounding) in enumerate(zip(operator.outputs, treated.roundings, strict=True)):
            if rounding is None:
                continue
            # An epilogue applies to every result alike, and several results may have different scales.
            if family.epilogue and len(outputs) == 1:
                steps = rounded(steps, rounding)
                continue
            outputs[position] = self._like(tensor)
            behind.append(self._rounded_copy(outputs[position], tensor, rounding, operator))
        self.contents |= self._updated(spec, outputs)
        sources, rows = (operator.index,), treated.quantised_rows
        attributes = spec.attributes if rows is None else {**spec.attributes, "quantises": rows}
        node = Node(operator.index, treated.kind, inputs, tuple(outputs), attributes, steps, sources)
        self.nodes += [node, *behind]

    def _read(self, tensor: int, seen: OperatorFacts, reader: Operator) -> int:
        """Return the value of a tensor that an operator reads, of the type in which the operator has it."""
        wanted = seen.types[tensor]
        if self.values[tensor].type is wanted or wanted is None:
            return self.contents.get(tensor, tensor)
        if (tensor, wanted) not in self.forms:
            self.forms[tensor, wanted] = self._converted(tensor, wanted, seen, reader)
        return self.forms[tensor, wanted]

    def _converted(self, tensor: int, wanted: ElementType, seen: OperatorFacts, reader: Operator) -> int:
        target = self._like(tensor, wanted)
        if (data := seen.graph.constants.get(tensor)) is not None:
            self.values[target] = replace(
                self.values[target], data=np.asarray(data, wanted.dtype), stored=None
            )
            return target
        levels = self.levels.get(tensor)
        if levels is None:
            raise ValueError(f"tensor {tensor} has no scale by which it could become {wanted.value}")
        kind = BuiltinOperator.DEQUANTIZE if wanted is ElementType.F32 else BuiltinOperator.QUANTIZE
        self.nodes.append(self._conversion(kind, tensor, target, levels, (reader.index,)))
        return target

    def _updated(self, spec: NodeSpec, outputs: list[int]) -> dict[int, int]:
        """Variable → the value that is its new content; the outputs that the operator lacks are added."""
        found = {}
        for tensor, position in spec.states.items():
            if position is None:
                outputs.append(self._like(tensor))
            found[tensor] = outputs[-1 if position is None else position]
        return found

    def _rounded_copy(self, source: int, target: int, levels: Levels, operator: Operator) -> Node:
        steps, number = rounded((Step("LOAD", (source,)),), levels), next(self.fresh_nodes)
        return Node(
            number, BuiltinOperator.QUANTIZE, (), (target,), epilogue=steps, sources=(operator.index,)
        )

    def _register(self, tensor: int, element: ElementType | None, facts: GraphFacts) -> None:
        if tensor in self.values:
            return
        known, data = self.facts.subgraph.tensors[tensor], facts.constants.get(tensor)
        if element is None:
            raise ValueError(f"tensor {tensor} of type {known.type.name.lower()} cannot be an operand")
        # Constants of fp16 are widened to float32 below.
        if data is not None and data.dtype not in (element.dtype, np.float16):
            raise ValueError(f"constant {tensor} of type {data.dtype.name} is no {element.value}")
        data = None if data is None else np.asarray(data, element.dtype)
        shape = tuple(int(extent) for extent in self.facts.shapes[tensor])
        narrow = None if data is None else self.stored_constants.get(tensor)
        self.values[tensor] = Value(tensor, shape, known.name, data, element, narrow)

    def _like(self, tensor: int, element: ElementType | None = None) -> int:
        """Add a value of a tensor's shape that is not the tensor's own."""
        own, number = self.values[tensor], next(self.fresh_values)
        self.values[number] = replace(own, id=number, type=element or own.type)
        return number

    def finished(self, read: Sequence[int], written: Sequence[int]) -> Graph:
        """Return the graph, whose inputs and outputs are these tensors, of the types of the file."""
        inputs = tuple(self._entering(tensor) for tensor in read)
        outputs = tuple(self._leaving(tensor) for tensor in written)
        results = (*outputs, *self.contents.values())
        tensors = len(self.facts.subgraph.tensors)
        return Graph(self.values, tuple(self.nodes), inputs, results, tuple(self.contents), tensors)

    def _entering(self, tensor: int) -> int:
        stored, levels = self._stored(tensor)
        if levels is not None:
            # The conversion stands for no operator: plans and profiles count it as its first reader's.
            reader = next(node for node in self.nodes if tensor in node.reads)
            node = self._conversion(BuiltinOperator.DEQUANTIZE, stored, tensor, levels, reader.sources)
            # In front of all, as any node may read the tensor.
            self.nodes.insert(0, node)
        return stored

    def _leaving(self, tensor: int) -> int:
        stored, levels = self._stored(tensor)
        if levels is not None:
            writer = next(node for node in self.nodes if tensor in node.outputs)
            self.nodes.append(
                self._conversion(BuiltinOperator.QUANTIZE, tensor, stored, levels, writer.sources)
            )
        return stored

    def _stored(self, tensor: int) -> tuple[int, Levels | None]:
        """Return the value with the tensor's type in the file; its levels if that is not the tensor's own."""
        known = self.facts.subgraph.tensors[tensor]
        own, levels = element_type(known.type), self.levels.get(tensor)
        self._register(tensor, own, self.facts)
        if levels is None or self.values[tensor].type is own:
            return tensor, None
        return self._like(tensor, own), levels

    def _conversion(
        self, kind: BuiltinOperator, source: int, target: int, levels: Levels, sources: tuple[int, ...]
    ) -> Node:
        attributes = {"scale": levels.scale, "zero_point": levels.zero_point}
        number = next(self.fresh_nodes)
        return Node(number, kind, (source,), (target,), attributes, sources=sources)


def _steps(spec: NodeSpec) -> tuple[Step, ...]:
    """Return the operator's steps and its fused activation."""
    name = spec.activation
    return spec.steps if name is None else (*spec.steps, Step(FUSED_ACTIVATIONS.get(name, name)))
