"""Builds the graph of a partition: one node for each operator, in the form that its kernel family reads."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from runtime.delegates.base import GraphFacts, Partition, Unsupported
from runtime.delegates.gpu.graph.element_type import ElementType, ElementTypes, element_type
from runtime.delegates.gpu.graph.epilogue import FUSED_ACTIVATIONS
from runtime.delegates.gpu.graph.graph import Custom, Graph, Node, Step, Value, shorten
from runtime.delegates.gpu.graph.simulation import (
    Levels,
    Quantised,
    computes_levels,
    is_real,
    is_simulated,
    is_widened,
    keeps_levels,
    levels_of,
    quantised_refusal,
    quantised_rows,
    real_facts,
    rounded,
    stored_constant,
)
from runtime.delegates.gpu.graph.weights import Stored, WeightType
from runtime.delegates.gpu.lowering import families, family_for, kind_of
from runtime.delegates.gpu.lowering.spec import Family, NodeSpec, OperatorFacts
from runtime.delegates.variables import HOST_OPERATORS, border_refusal
from runtime.model.graph import Operator
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.support.registry import CUSTOM_SPECS, SPECS

_PARAMETERS = frozenset({TensorType.INT32, TensorType.INT64})
"""Types of axes, paddings, shapes and the like, which lowering reads; they never enter the graph."""


def is_folded(facts: GraphFacts, operator: Operator) -> bool:
    """Return True for an operator whose results are constants already (DEQUANTIZE of fp16 weights).

    One without results (CALL_ONCE, ASSIGN_VARIABLE) acts on something else and is not.
    """
    return bool(operator.outputs) and all(output in facts.constants for output in operator.outputs)


def refusal(facts: GraphFacts, operator: Operator, way: Quantised = Quantised.REAL) -> Unsupported | None:
    """Return why the delegate cannot run an operator, or None; `way` treats quantised tensors."""
    if is_folded(facts, operator):
        return None
    if operator.opcode in HOST_OPERATORS:
        return border_refusal(facts, operator)
    claims = families().get(kind_of(operator))
    if claims is None:
        return Unsupported("no OpenCL kernel for this operator")
    newest = _newest_version(operator)
    if operator.version > newest:
        # The words of LiteRT's delegate, for which users and their tools look.
        return Unsupported(f"Max version supported: {newest}. Requested version {operator.version}.")
    family = _family(facts, operator, way)
    if family is None:
        types = (element for claim in claims for element in claim.types_of(kind_of(operator)).of_input(0))
        return _refused(facts, operator, operator.inputs[0], _name(facts, operator.inputs[0]), _listed(types))
    if (found := quantised_refusal(facts, operator, kind_of(operator), way)) is not None:
        return found
    places = list(_places(facts, operator, family, way))
    if (found := _tensor_refusal(facts, operator, family, places)) is not None:
        return found
    seen = _seen(facts, operator, places)
    for i, what in family.constants.items():
        if seen.has_input(i) and seen.constant(i) is None:
            return Unsupported(f"{what} must be constant")
    return family.supports(seen)


def _family(facts: GraphFacts, operator: Operator, way: Quantised) -> Family | None:
    """Return the family that runs the operator, by the type of its first input if there are several."""
    first = operator.inputs[0] if operator.inputs else -1
    element = None if first < 0 else _type(facts, first, simulated=is_simulated(facts, operator, way))
    return family_for(kind_of(operator), element)


def _newest_version(operator: Operator) -> int:
    """Return the newest version whose rules are known: the CPU path's; 1 if that has no kernel."""
    kind = kind_of(operator)
    spec = CUSTOM_SPECS.get(kind.value) if isinstance(kind, Custom) else SPECS.get(kind)
    return 1 if spec is None else spec.max_version


def _type(facts: GraphFacts, tensor: int, *, simulated: bool) -> ElementType | None:
    """Return the type in which a tensor of an operator enters the graph; None for one that cannot."""
    if simulated and is_real(facts, tensor):
        return ElementType.F32
    return element_type(facts.subgraph.tensors[tensor].type)


@dataclass(frozen=True, slots=True)
class _Place:
    """A tensor of an operator: the types that it may have there, and the one in which it enters the graph.

    A widened constant enters as the real numbers that its integers stand for.
    """

    tensor: int
    known: ElementTypes
    is_parameter: bool
    type: ElementType | None
    is_widened: bool


def _tensor_refusal(
    facts: GraphFacts, operator: Operator, family: Family, places: Sequence[_Place]
) -> Unsupported | None:
    """Return why a tensor keeps the operator on the CPU, before its family is asked.

    Families may then rely on the types that they know and on at least one element.
    """
    is_alike, chosen = family.types_of(kind_of(operator)).alike, dict[ElementTypes, tuple[int, ElementType]]()
    for place in places:
        tensor, known, element = place.tensor, place.known, place.type
        kind, is_constant = facts.subgraph.tensors[tensor].type, tensor in facts.constants
        if place.is_parameter and is_constant:
            if kind in _PARAMETERS:
                continue
            return _refused(facts, operator, tensor, _name(facts, tensor), "a constant of int32 or int64")
        # Constants of fp16 enter as float32; no kernel computes with tensors of fp16.
        half = kind is TensorType.FLOAT16 and not is_constant
        if half or element is None or element not in known:
            if place.is_parameter and kind in _PARAMETERS:
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


def _places(facts: GraphFacts, operator: Operator, family: Family, way: Quantised) -> Iterator[_Place]:
    """Yield the operator's tensors, inputs first, without absent ones."""
    types, parameters = family.types_of(kind_of(operator)), family.parameters_of(kind_of(operator))
    simulated = is_simulated(facts, operator, way)
    weights = {operator.inputs[i] for i in family.weights if i < len(operator.inputs)}

    def place(tensor: int, known: ElementTypes, *, is_parameter: bool) -> _Place:
        element = _type(facts, tensor, simulated=simulated)
        # A bias is widened; an int32 that a kernel takes as it is, such as an index, stays one.
        own_is_known = element in known and not is_real(facts, tensor)
        widened = (simulated or tensor in weights) and is_widened(facts, tensor)
        widened = widened and not is_parameter and not own_is_known
        return _Place(tensor, known, is_parameter, ElementType.F32 if widened else element, widened)

    for position, tensor in enumerate(operator.inputs):
        if tensor >= 0:
            yield place(tensor, types.of_input(position), is_parameter=position in parameters)
    for position, tensor in enumerate(operator.outputs):
        if tensor >= 0:
            yield place(tensor, types.of_output(position), is_parameter=False)


def _seen(facts: GraphFacts, operator: Operator, places: Sequence[_Place]) -> OperatorFacts:
    """Return the operator as its family sees it."""
    widened = frozenset(place.tensor for place in places if place.is_widened)
    types = {place.tensor: place.type for place in places}
    return OperatorFacts(operator, real_facts(facts, widened), types)


def _name(facts: GraphFacts, tensor: int) -> str:
    return facts.subgraph.tensors[tensor].type.name.lower()


def _listed(types: Iterable[ElementType]) -> str:
    return " or ".join(element.value for element in types)


def _refused(facts: GraphFacts, operator: Operator, tensor: int, found: str, limit: str) -> Unsupported:
    name = shorten(facts.subgraph.tensors[tensor].name)
    return Unsupported(f"tensor {tensor} {name!r} is {found}, where {kind_of(operator).name} takes {limit}")


def build_graph(partition: Partition, *, is_narrow: bool = True, way: Quantised = Quantised.REAL) -> Graph:
    """Build the graph of a partition whose operators all passed `refusal`.

    Constants stay beside their float32 form as the file stores them where `is_narrow` is true. Else their
    stored form is float32 too, which lets the same kernels be chosen for them.
    Raises ValueError where a tensor of a type that no kernel knows would become an operand.
    """
    facts = GraphFacts(partition.subgraph, partition.shapes, partition.dtypes, partition.constants)
    kept = _stored_constants(facts)
    if not is_narrow:
        kept = {tensor: Stored(WeightType.F32, one.widened()) for tensor, one in kept.items()}
    building = _Building(facts, kept, way)
    for operator in partition.operators:
        if not is_folded(facts, operator):
            building.add(operator)
    return building.finished(partition.inputs, partition.outputs)


def graph_of_one(facts: GraphFacts, operator: Operator, way: Quantised = Quantised.REAL) -> Graph:
    """Build the graph of an operator that passed `refusal`, as if it were a partition."""
    building = _Building(facts, {}, way)
    building.add(operator)
    read = dict.fromkeys(t for t in operator.inputs if t >= 0 and t not in facts.constants)
    return building.finished(tuple(read), tuple(t for t in operator.outputs if t >= 0))


class _Building:
    """A graph under construction. A value's id is its tensor's index; those behind have no tensor.

    A tensor enters in the type in which the first operator has it; `forms` are its values of other types.
    """

    def __init__(self, facts: GraphFacts, stored_constants: dict[int, Stored], way: Quantised) -> None:
        self.facts = facts
        self.way = way
        self.stored_constants = stored_constants
        self.values: dict[int, Value] = {}
        self.nodes: list[Node] = []
        self.contents: dict[int, int] = {}
        self.forms: dict[tuple[int, ElementType], int] = {}
        self.fresh_values = count(len(facts.subgraph.tensors))
        self.fresh_nodes = count(len(facts.subgraph.operators))

    def add(self, operator: Operator) -> None:
        """Add the operator's node, and nodes that round the results that it does not round itself."""
        kind, family = kind_of(operator), _family(self.facts, operator, self.way)
        if family is None:
            raise ValueError(f"no kernel family runs operator {operator.index}, {kind.name}")
        seen = _seen(self.facts, operator, list(_places(self.facts, operator, family, self.way)))
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
        for position, tensor in enumerate(operator.outputs):
            rounding = self._rounding(operator, tensor)
            if rounding is None:
                continue
            # An epilogue applies to every result alike, and several results may have different scales.
            if family.epilogue and len(outputs) == 1:
                steps = rounded(steps, rounding)
                continue
            outputs[position] = self._like(tensor)
            behind.append(self._rounded_copy(outputs[position], tensor, rounding, operator))
        self.contents |= self._updated(spec, outputs)
        sources = (operator.index,)
        rows = quantised_rows(self.facts, operator) if self.way is Quantised.LEVELS else None
        attributes = spec.attributes if rows is None else {**spec.attributes, "quantises": rows}
        node = Node(operator.index, kind, inputs, tuple(outputs), attributes, steps, sources)
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
        levels = levels_of(self.facts.subgraph.tensors[tensor])
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

    def _rounding(self, operator: Operator, tensor: int) -> Levels | None:
        """Return the levels to which a result must be rounded, or None."""
        tensors = self.facts.subgraph.tensors
        inputs = [tensors[i] for i in operator.inputs if i >= 0]
        if self.way is not Quantised.REAL or computes_levels(self.facts, operator):
            return None
        if keeps_levels(kind_of(operator), inputs, tensors[tensor]):
            return None
        # QUANTIZE of float32 rounds itself, exactly as LiteRT's does.
        rounds = kind_of(operator) is BuiltinOperator.QUANTIZE and levels_of(inputs[0]) is None
        return None if rounds else levels_of(tensors[tensor])

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
            reader = next(node for node in self.nodes if tensor in node.reads)
            node = self._conversion(BuiltinOperator.DEQUANTIZE, stored, tensor, levels, reader.sources)
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
        own, levels = element_type(known.type), levels_of(known)
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


def _stored_constants(facts: GraphFacts) -> dict[int, Stored]:
    """Tensor → what the file holds of a float32 constant: fp16, or what a DEQUANTIZE made it of."""
    constants = facts.constants
    sources = {tensor: tensor for tensor in constants}
    for operator in facts.subgraph.operators:
        if operator.opcode is BuiltinOperator.DEQUANTIZE and operator.outputs[0] in constants:
            sources[operator.outputs[0]] = operator.inputs[0]
    found = {t: stored_constant(facts, s) for t, s in sources.items() if s in constants}
    return {tensor: one for tensor, one in found.items() if one is not None}
