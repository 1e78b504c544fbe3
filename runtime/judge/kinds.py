"""The kinds of a model's outputs: by its graph, and by what a campaign file says of them.

`value`: judged by norms. `index`: class ids and the like, of which another one is no nearer for being the
next. `detections`: boxes, classes, scores and their count, judged together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from runtime.errors import FarmRuntimeError
from runtime.model.graph import Model, Operator, Subgraph
from runtime.model.schema import BuiltinOperator, TensorType

Kind: TypeAlias = Literal["value", "index", "detections"]
Role: TypeAlias = Literal["boxes", "classes", "scores", "count"]

ROLES: Final[tuple[Role, ...]] = ("boxes", "classes", "scores", "count")
"""The outputs of TFLite_Detection_PostProcess in its order."""

_DETECTOR: Final = "TFLite_Detection_PostProcess"

_COPIES: Final = (
    BuiltinOperator.RESHAPE,
    BuiltinOperator.SQUEEZE,
    BuiltinOperator.EXPAND_DIMS,
    BuiltinOperator.CAST,
    BuiltinOperator.TRANSPOSE,
    BuiltinOperator.SLICE,
    BuiltinOperator.STRIDED_SLICE,
)
"""Operators whose output holds values of their first input, and nothing else."""

_RESHAPES: Final = (BuiltinOperator.RESHAPE, BuiltinOperator.SQUEEZE, BuiltinOperator.EXPAND_DIMS)
"""Of these, those that keep every value at its place of the flat array."""

_INDICES: Final = {
    BuiltinOperator.ARG_MAX: (0,),
    BuiltinOperator.ARG_MIN: (0,),
    BuiltinOperator.TOPK_V2: (1,),
    BuiltinOperator.NON_MAX_SUPPRESSION_V4: (0, 1),
    BuiltinOperator.NON_MAX_SUPPRESSION_V5: (0, 2),
}
"""Outputs of operators that are indices, or the number of them."""

_INTEGERS: Final = (
    TensorType.INT8,
    TensorType.UINT8,
    TensorType.INT16,
    TensorType.UINT16,
    TensorType.INT32,
    TensorType.UINT32,
    TensorType.INT64,
    TensorType.UINT64,
    TensorType.BOOL,
)


class UnknownOutputError(FarmRuntimeError):
    """A kind is set for an output that the model lacks, or the roles of its detections are incomplete."""


@dataclass(frozen=True, slots=True)
class OutputKind:
    """The kind of one output. `role`: its part in the detections.

    `candidates`: the output from which an index was chosen, where it is one, too, along `axis`; `is_least`:
    the least of them was; `is_sorted`: that output holds the chosen values alone, best first.
    """

    kind: Kind = "value"
    role: Role | None = None
    candidates: int | None = None
    axis: int = -1
    is_least: bool = False
    is_sorted: bool = False


Stated: TypeAlias = Mapping[str, tuple[Kind, Role | None]]
"""Kinds by the names of outputs, as a campaign file sets them."""


def output_kinds(model: Model, stated: Stated) -> tuple[OutputKind, ...]:
    """Return each output's kind, first as stated, then by the graph. Raises `UnknownOutputError`."""
    graph = model.subgraphs[0]
    names = [graph.tensors[i].name for i in graph.outputs]
    for name in stated:
        if name not in names:
            raise UnknownOutputError(f"outputs: the model has no output {name!r}, but {', '.join(names)}")
    kinds = [
        OutputKind(*stated[name]) if name in stated else _found(graph, tensor)
        for name, tensor in zip(names, graph.outputs, strict=True)
    ]
    roles = [kind.role for kind in kinds if kind.kind == "detections"]
    if len(set(roles)) == len(roles) and (not roles or {"boxes", "classes", "scores"} <= set(roles)):
        return tuple(kinds)
    if any(stated[name][0] == "detections" for name in stated):
        raise UnknownOutputError("outputs: detections are boxes, classes, scores and perhaps count, one each")
    # A part of what a detector finds cannot be matched.
    return tuple(
        OutputKind("index" if kind.role in ("classes", "count") else "value") if kind.role else kind
        for kind in kinds
    )


def kinds_by_type(arrays: Sequence[tuple[str, float]]) -> tuple[OutputKind, ...]:
    """Return the kinds where no graph is known: (kind of numpy's dtype, scale) of each output."""
    return tuple(OutputKind("index" if code in "iub" and scale == 0.0 else "value") for code, scale in arrays)


def _found(graph: Subgraph, tensor: int) -> OutputKind:
    operator, place, is_in_place = _origin(graph, tensor)
    if operator is not None and operator.custom_code == _DETECTOR and place < len(ROLES):
        return OutputKind("detections", ROLES[place])
    if operator is not None and place in _INDICES.get(operator.opcode, ()):
        return _index(graph, operator) if is_in_place else OutputKind("index")
    quantization = graph.tensors[tensor].quantization
    is_plain = quantization is None or not quantization.scales
    return OutputKind("index" if graph.tensors[tensor].type in _INTEGERS and is_plain else "value")


def _origin(graph: Subgraph, tensor: int) -> tuple[Operator | None, int, bool]:
    """Return what computed the values of a tensor, as which output, and whether all are at their places."""
    producers = {output: operator for operator in graph.operators for output in operator.outputs}
    is_in_place = True
    while (operator := producers.get(tensor)) is not None and operator.opcode in _COPIES:
        is_in_place &= operator.opcode in (*_RESHAPES, BuiltinOperator.CAST)
        tensor = operator.inputs[0]
    return operator, 0 if operator is None else operator.outputs.index(tensor), is_in_place


def _index(graph: Subgraph, operator: Operator) -> OutputKind:
    """Return an index with its candidates, where these are an output of the model, too."""
    is_top = operator.opcode is BuiltinOperator.TOPK_V2
    source = operator.outputs[0] if is_top else operator.inputs[0]
    if source not in graph.outputs:
        return OutputKind("index")
    place = graph.outputs.index(source)
    if is_top:
        return OutputKind("index", candidates=place, is_sorted=True)
    if operator.opcode in (BuiltinOperator.ARG_MAX, BuiltinOperator.ARG_MIN):
        data = graph.tensors[operator.inputs[1]].data
        # An axis that is computed at run time is not known here.
        if data is not None:
            # int32 or int64: axes are small, so that the low half of the latter is the same number.
            axis = int.from_bytes(data[:4], "little", signed=True)
            is_least = operator.opcode is BuiltinOperator.ARG_MIN
            return OutputKind("index", candidates=place, axis=axis, is_least=is_least)
    return OutputKind("index")
