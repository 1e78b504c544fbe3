"""A TRANSPOSE in front of a matrix product becomes the strides with which the product reads its operand.

Attention exchanges heads and positions in front of its products, and converters write an adjoint as a
TRANSPOSE of the last two dimensions. The kernels of products take any strides, so the copy is spared.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from runtime.delegates.gpu.graph.graph import Graph, Node
from runtime.model.schema import BuiltinOperator

_BATCH_AXES = 3
"""Most batch dimensions of extent above 1: those of a product of rank 5, which its kernels take apart."""


@dataclass(frozen=True, slots=True)
class _Transposed:
    """An operand that is the transpose of value `source`: matrices in the last two of `axes`.

    `batches` are the extents of the other axes, those of 1 left out; `nodes` made the operand.
    """

    source: int
    axes: tuple[int, ...]
    batches: tuple[int, ...]
    nodes: tuple[Node, ...]


def fold_transpose(graph: Graph) -> Graph:
    """Rewrite TRANSPOSE (→ RESHAPE of the batches) → BATCH_MATMUL.

    The product gets the attributes `x_axes` or `z_axes`, the permutation of the operand that it reads, and
    `batches`, the extents of its batch dimensions as both operands then see them.
    """
    producers, consumers = graph.producers(), graph.consumers()
    private = {
        value: node
        for value, node in producers.items()
        if len(consumers[value]) == 1 and value not in graph.outputs
    }
    folded: dict[int, Node] = {}
    gone: set[int] = set()
    for node in graph.nodes:
        if node.op == BuiltinOperator.BATCH_MATMUL and _matches_batches(node, graph):
            found = _operands(node, graph, private)
            copies = {made.id: made for operand in found.values() for made in operand.nodes}
            folded[node.id] = _reading(node, found, list(copies.values()))
            gone.update(copies)
    return graph.with_nodes(folded.get(node.id, node) for node in graph.nodes if node.id not in gone)


def _matches_batches(node: Node, graph: Graph) -> bool:
    """Return True if neither operand is broadcast, so that one numbering of the batches serves both."""
    count = prod(graph.values[node.outputs[0]].shape[:-2])
    return all(prod(graph.values[value].shape[:-2]) == count for value in node.inputs if value is not None)


def _operands(node: Node, graph: Graph, private: Mapping[int, Node]) -> dict[str, _Transposed]:
    """Return the operands, `x` and `z`, that can be read before their transposition; they agree in
    `batches`.
    """
    found: dict[str, _Transposed] = {}
    for name, value in zip("xz", node.inputs, strict=True):
        operand = None if value is None else _transposed(value, graph, private)
        if operand is not None and all(operand.batches == other.batches for other in found.values()):
            found[name] = operand
    return found


def _transposed(value: int, graph: Graph, private: Mapping[int, Node]) -> _Transposed | None:
    nodes: tuple[Node, ...] = ()
    made = private.get(value)
    if made is not None and made.op == BuiltinOperator.RESHAPE and not made.epilogue:
        (before,) = made.reads
        if graph.values[before].shape[-2:] != graph.values[value].shape[-2:]:
            return None
        nodes, made = (made,), private.get(before)
    if made is None or made.op != BuiltinOperator.TRANSPOSE or made.epilogue or "perm" not in made.attributes:
        return None
    (source,), axes = made.reads, tuple(made.attributes["perm"])
    shape = graph.values[source].shape
    batches = tuple(shape[axis] for axis in axes[:-2] if shape[axis] > 1)
    # Kernels read runs of the last dimension; a matrix without it would be gathered number by number.
    if len(shape) - 1 not in axes[-2:] or len(batches) > _BATCH_AXES:
        return None
    return _Transposed(source, axes, batches, (made, *nodes))


def _reading(node: Node, found: Mapping[str, _Transposed], copies: list[Node]) -> Node:
    if not found:
        return node
    inputs = tuple(
        found[name].source if name in found else value for name, value in zip("xz", node.inputs, strict=True)
    )
    batches = next(iter(found.values())).batches
    attributes = {
        **node.attributes,
        **{f"{name}_axes": operand.axes for name, operand in found.items()},
        "batches": (1,) * (_BATCH_AXES - len(batches)) + batches,
    }
    sources = (*(index for made in copies for index in made.sources), *node.sources)
    return replace(node, inputs=inputs, attributes=attributes, sources=sources)
