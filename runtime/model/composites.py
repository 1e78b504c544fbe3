"""Puts the decompositions of composite operators in their places, so that delegates see what is inside.

A composite (STABLEHLO_COMPOSITE: attention, norms, rotary embeddings, updates of caches) means what its
decomposition, another subgraph, computes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from runtime.model.graph import Model, Operator, Quantization, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator

MOST_OPERATORS = 100_000
"""Operators of a subgraph up to which decompositions are put in place. Nested composites of a hostile file
double with each level, and their operators would fill the memory. Chosen far above what models have."""


def with_decompositions(model: Model) -> Model:
    """Replace the composites of a model by their decompositions, where these can take their places.

    Tensors keep their indices, those of decompositions get new ones behind them; operators are numbered anew.
    Subgraphs must not call each other in a circle.
    """
    sizes: dict[int, int] = {}
    return replace(model, subgraphs=tuple(_expanded(model, subgraph, sizes) for subgraph in model.subgraphs))


def _expanded(model: Model, subgraph: Subgraph, sizes: dict[int, int]) -> Subgraph:
    if not any(_decomposition(model, o) for o in subgraph.operators):
        return subgraph
    # Counted before anything is built.
    if _size(model, subgraph, sizes) > MOST_OPERATORS:
        return subgraph
    target = _Target(list(subgraph.tensors), [])
    _append(model, target, subgraph.operators, {i: i for i in range(len(subgraph.tensors))})
    return replace(subgraph, tensors=tuple(target.tensors), operators=tuple(target.operators))


@dataclass(frozen=True, slots=True)
class _Target:
    """The subgraph that grows."""

    tensors: list[Tensor]
    operators: list[Operator]


def _size(model: Model, subgraph: Subgraph, sizes: dict[int, int]) -> int:
    """Count the operators of a subgraph with all decompositions in place."""
    if subgraph.index not in sizes:
        inner = (_decomposition(model, operator) for operator in subgraph.operators)
        # An upper bound: a composite that does not fit remains one operator.
        sizes[subgraph.index] = sum(1 if one is None else _size(model, one, sizes) for one in inner)
    return sizes[subgraph.index]


def _decomposition(model: Model, operator: Operator) -> Subgraph | None:
    if operator.opcode is not BuiltinOperator.STABLEHLO_COMPOSITE:
        return None
    index: int = operator.options["decomposition_subgraph_index"]
    return model.subgraphs[index]


def _append(model: Model, target: _Target, operators: Iterable[Operator], where: Mapping[int, int]) -> None:
    """Append operators whose tensors `where` maps to those of the target."""
    for operator in operators:
        moved = replace(
            operator,
            index=len(target.operators),
            inputs=_moved(operator.inputs, where),
            outputs=_moved(operator.outputs, where),
            intermediates=_moved(operator.intermediates, where),
        )
        inner = _decomposition(model, operator)
        if inner is None or not _fits(target, moved, inner):
            target.operators.append(moved)
        else:
            # The depth is bounded: `check_calls` of the plan has refused circles and deep nesting before.
            _append(model, target, inner.operators, _places(target, moved, inner))


def _moved(tensors: Sequence[int], where: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(where[i] if i >= 0 else i for i in tensors)


def _fits(target: _Target, operator: Operator, inner: Subgraph) -> bool:
    """Whether the operators of a decomposition can read and write the composite's own tensors.

    A result that no operator of it makes would have to be copied; a variable inside belongs to the subgraph,
    which several composites may share; another type or quantisation is an operand seen in another way.
    """
    made = {i for o in inner.operators for i in o.outputs}
    results = inner.outputs
    if len(set(results)) != len(results) or not made.issuperset(results):
        return False
    if any(tensor.is_variable for tensor in inner.tensors):
        return False
    inputs, outputs = (inner.inputs, operator.inputs), (inner.outputs, operator.outputs)
    for own, given in (inputs, outputs):
        if len(own) != len(given) or not all(
            outer < 0 or _is_alike(inner.tensors[i], target.tensors[outer])
            for i, outer in zip(own, given, strict=True)
        ):
            return False
    return True


def _is_alike(one: Tensor, other: Tensor) -> bool:
    return (one.type, one.quantization) == (other.type, other.quantization)


def _places(target: _Target, operator: Operator, inner: Subgraph) -> dict[int, int]:
    """Map each tensor of a decomposition to its index in the target; those within it are appended."""
    where = dict(zip(inner.inputs, operator.inputs, strict=True))
    where |= dict(zip(inner.outputs, operator.outputs, strict=True))
    fresh = [tensor.index for tensor in inner.tensors if tensor.index not in where]
    where |= {index: len(target.tensors) + i for i, index in enumerate(fresh)}
    for index in fresh:
        tensor = inner.tensors[index]
        held = _requantized(tensor.quantization, where)
        target.tensors.append(replace(tensor, index=where[index], quantization=held))
    return where


def _requantized(quantization: Quantization | None, where: Mapping[int, int]) -> Quantization | None:
    """Return the quantisation with the present indices of its blocks' scales."""
    if quantization is None or quantization.blocks is None:
        return quantization
    blocks = quantization.blocks
    (zero_points,) = _moved((blocks.zero_points,), where)
    return replace(quantization, blocks=replace(blocks, scales=where[blocks.scales], zero_points=zero_points))
