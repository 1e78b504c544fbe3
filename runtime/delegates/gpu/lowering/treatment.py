"""Decides how the delegate treats an operator and its tensors, before any graph is built.

One pass for each operator: its family, the types in which its tensors enter the graph, the constants that are
widened, the levels to which its results are rounded. A graph is built of that alone; a refusal is its reason.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from runtime.delegates.base import GraphFacts, Unsupported
from runtime.delegates.gpu.graph.element_type import ElementType, ElementTypes, element_type
from runtime.delegates.gpu.graph.epilogue import Levels
from runtime.delegates.gpu.graph.graph import Custom, Kind, shorten
from runtime.delegates.gpu.graph.simulation import (
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
    stored_constant,
)
from runtime.delegates.gpu.graph.weights import Stored
from runtime.delegates.gpu.lowering import families, family_for, kind_of
from runtime.delegates.gpu.lowering.spec import Family, OperatorFacts
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
        # By the types that a place may have: those that share them are the places that must be alike.
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


@dataclass(frozen=True, slots=True)
class Treated:
    """An operator as its family sees it. `roundings`: the levels to which each of its results is rounded
    behind its kernel; None: to none. `quantised_rows`: as the function of that name.
    """

    kind: Kind
    family: Family
    facts: OperatorFacts
    roundings: tuple[Levels | None, ...]
    quantised_rows: str | None

    @property
    def operator(self) -> Operator:
        """The operator of the model."""
        return self.facts.operator


@dataclass(frozen=True, slots=True)
class Treatment:
    """The operators of a graph with the facts about its tensors. `levels`: of each quantised tensor with one
    scale. `stored`: what the file holds of each float32 constant that it has in another form.
    """

    facts: GraphFacts
    operators: tuple[Treated, ...]
    levels: Mapping[int, Levels]
    stored: Mapping[int, Stored]


def treatment_of(facts: GraphFacts, operators: Iterable[Operator], way: Quantised) -> Treatment:
    """Treat the operators that are not folded. Raises ValueError for one that no family runs."""
    known = ((tensor.index, levels_of(tensor)) for tensor in facts.subgraph.tensors)
    return Treatment(
        facts,
        tuple(_treated(facts, operator, way) for operator in operators if not is_folded(facts, operator)),
        {tensor: levels for tensor, levels in known if levels is not None},
        _stored_constants(facts),
    )


def _treated(facts: GraphFacts, operator: Operator, way: Quantised) -> Treated:
    kind, family = kind_of(operator), _family(facts, operator, way)
    if family is None:
        raise ValueError(f"no kernel family runs operator {operator.index}, {kind.name}")
    return Treated(
        kind,
        family,
        _seen(facts, operator, list(_places(facts, operator, family, way))),
        tuple(_rounding(facts, operator, tensor, way) for tensor in operator.outputs),
        quantised_rows(facts, operator) if way is Quantised.LEVELS else None,
    )


def _rounding(facts: GraphFacts, operator: Operator, tensor: int, way: Quantised) -> Levels | None:
    """Return the levels to which a result must be rounded, or None."""
    tensors = facts.subgraph.tensors
    inputs = [tensors[i] for i in operator.inputs if i >= 0]
    if way is not Quantised.REAL or computes_levels(facts, operator):
        return None
    if keeps_levels(kind_of(operator), inputs, tensors[tensor]):
        return None
    # QUANTIZE of float32 rounds itself, exactly as LiteRT's does.
    rounds = kind_of(operator) is BuiltinOperator.QUANTIZE and levels_of(inputs[0]) is None
    return None if rounds else levels_of(tensors[tensor])


def _stored_constants(facts: GraphFacts) -> dict[int, Stored]:
    """Tensor → what the file holds of a float32 constant: fp16, or what a DEQUANTIZE made it of."""
    constants = facts.constants
    sources = {tensor: tensor for tensor in constants}
    for operator in facts.subgraph.operators:
        if operator.opcode is BuiltinOperator.DEQUANTIZE and operator.outputs[0] in constants:
            sources[operator.outputs[0]] = operator.inputs[0]
    found = {t: stored_constant(facts, s) for t, s in sources.items() if s in constants}
    return {tensor: one for tensor, one in found.items() if one is not None}
