"""Replaces operators that are others in disguise by those, which later passes and the lowering know.

SPLIT, SPLIT_V and UNPACK become a SLICE for each of their outputs. PACK is a CONCATENATION, whose parts may
be written in place. What only changes the shape is a RESHAPE, often a view. Paddings and crops of batches of
blocks are a PAD and a SLICE.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, TypeAlias

from numpy.typing import NDArray

from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import Graph, Kind, Node, Value
from runtime.model.schema import BuiltinOperator as Op


@dataclass(slots=True)
class _Rewriting:
    """The graph, numbers that it does not use, and the values that were added."""

    graph: Graph
    node_ids: Iterator[int]
    value_ids: Iterator[int]
    added: dict[int, Value] = field(default_factory=dict)

    def shape(self, value: int | None) -> tuple[int, ...]:
        if value is None:
            raise ValueError("a moved tensor is absent")
        return (self.added.get(value) or self.graph.values[value]).shape

    def value(self, original: Node, shape: tuple[int, ...], data: NDArray[Any] | None = None) -> int:
        """Add a value of the type that the original's outputs have."""
        number, target = next(self.value_ids), original.outputs[0]
        element = (self.added.get(target) or self.graph.values[target]).type
        self.added[number] = Value(number, shape, data=data, type=element)
        return number

    def node(self, original: Node, op: Op, source: int | None, target: int, **attributes: object) -> Node:
        return Node(next(self.node_ids), op, (source,), (target,), attributes, sources=original.sources)


Rewrite: TypeAlias = Callable[[Node, _Rewriting], list[Node]]


def canonicalise(graph: Graph) -> Graph:
    """Rewrite every node that a function of `_REWRITES` knows."""
    rewriting = _Rewriting(
        graph, count(max((node.id for node in graph.nodes), default=-1) + 1), count(graph.fresh_id())
    )
    nodes = [found for node in graph.nodes for found in _rewritten(node, rewriting)]
    return graph.with_nodes(nodes, rewriting.added.values())


def _rewritten(node: Node, rewriting: _Rewriting) -> list[Node]:
    rewrite = _REWRITES.get(node.op)
    found = [node] if rewrite is None else rewrite(node, rewriting)
    # The result of a rewrite may contain operators that are rewritten themselves.
    return found if found == [node] else [last for each in found for last in _rewritten(each, rewriting)]


def _slices(node: Node, rewriting: _Rewriting) -> list[Node]:
    """One SLICE for each output that is used."""
    shape, axis = rewriting.shape(node.inputs[0]), node.attributes["axis"]
    axes = range(len(shape))
    kept = tuple(a for a in axes if a != axis or not node.attributes["drops_axis"])
    consumers = rewriting.graph.consumers()
    return [
        rewriting.node(
            node,
            Op.SLICE,
            node.inputs[0],
            output,
            starts=tuple(start if a == axis else 0 for a in axes),
            strides=(1,) * len(shape),
            kept=kept,
        )
        for output, start in zip(node.outputs, node.attributes["starts"], strict=True)
        if consumers[output] or output in rewriting.graph.outputs
    ]


def _concatenation(node: Node, rewriting: _Rewriting) -> list[Node]:
    """Each part with a new axis, then one CONCATENATION along it.

    A new last axis of length 1 would cost a padded row for each element. Parts of two or more dimensions are
    joined in front of their last one instead, and a TRANSPOSE brings the new axis behind it.
    """
    shape, axis = rewriting.shape(node.inputs[0]), node.attributes["axis"]
    is_last = axis == len(shape) and shape != ()
    place = axis - 1 if is_last else axis
    (target,) = node.outputs
    nodes, parts = [], []
    part_shape = (*shape[:place], 1, *shape[place:])
    for source in node.inputs:
        data = None if source is None else rewriting.graph.values[source].data
        parts.append(rewriting.value(node, part_shape, None if data is None else data.reshape(part_shape)))
        if data is None:
            nodes.append(rewriting.node(node, Op.RESHAPE, source, parts[-1]))
    joined = target
    if is_last:
        joined = rewriting.value(node, (*shape[:place], len(parts), *shape[place:]))
    whole = rewriting.node(node, Op.CONCATENATION, None, joined, axis=place)
    nodes.append(replace(whole, inputs=tuple(parts)))
    if is_last:
        nodes.append(rewriting.node(node, Op.TRANSPOSE, joined, target, perm=(*range(place), axis, place)))
    return nodes


def _reshape(node: Node, rewriting: _Rewriting) -> list[Node]:  # noqa: ARG001 - as the other rewrites
    return [replace(node, op=Op.RESHAPE)]


def _reshape_of_transpose(node: Node, rewriting: _Rewriting) -> list[Node]:
    """Replace a TRANSPOSE that moves only axes of length 1: it keeps the order of the elements.

    One of a graph's input stays: the layout pass gives its readers strides where it can.
    """
    if node.inputs[0] in rewriting.graph.inputs:
        return [node]
    shape = rewriting.shape(node.inputs[0])
    moved = [axis for axis in node.attributes["perm"] if shape[axis] > 1]
    return [replace(node, op=Op.RESHAPE, attributes={})] if moved == sorted(moved) else [node]


def _reshape_of_same(node: Node, rewriting: _Rewriting) -> list[Node]:
    """Replace a repetition, padding or cut to a tensor's own shape, unless it runs backwards."""
    is_same = rewriting.shape(node.inputs[0]) == rewriting.shape(node.outputs[0])
    forwards = min(node.attributes.get("strides", (1,)), default=1) > 0
    return [replace(node, op=Op.RESHAPE, attributes={})] if is_same and forwards else [node]


def _reshape_of_real(node: Node, rewriting: _Rewriting) -> list[Node]:
    """Replace a DEQUANTIZE of real numbers, which quantised tensors hold on the simulated path."""
    is_real = node.inputs[0] is not None and rewriting.graph.values[node.inputs[0]].type is ElementType.F32
    return [replace(node, op=Op.RESHAPE)] if is_real else [node]


def _padded_space_to_batch(node: Node, rewriting: _Rewriting) -> list[Node]:
    """Put a PAD in front if the edges are not zero."""
    shape, edges = rewriting.shape(node.inputs[0]), node.attributes["edges"]
    if not any(map(sum, edges)):
        return [node]
    paddings = ((0, 0), *edges, *((0, 0),) * (len(shape) - len(edges) - 1))
    padded = rewriting.value(node, tuple(d + sum(p) for d, p in zip(shape, paddings, strict=True)))
    # `value` equals `zero`, by which `merge_padding` sees that a convolution may absorb it.
    pad = rewriting.node(node, Op.PAD, node.inputs[0], padded, paddings=paddings, value=0.0, zero=0.0)
    return [pad, replace(node, inputs=(padded,), attributes=_without_edges(node))]


def _cropped_batch_to_space(node: Node, rewriting: _Rewriting) -> list[Node]:
    """Put a SLICE behind if the edges are not zero."""
    shape, edges = rewriting.shape(node.outputs[0]), node.attributes["edges"]
    if not any(map(sum, edges)):
        return [node]
    crops = ((0, 0), *edges, *((0, 0),) * (len(shape) - len(edges) - 1))
    whole = rewriting.value(node, tuple(d + sum(c) for d, c in zip(shape, crops, strict=True)))
    cut = rewriting.node(
        node,
        Op.SLICE,
        whole,
        node.outputs[0],
        starts=tuple(before for before, _ in crops),
        strides=(1,) * len(shape),
        kept=tuple(range(len(shape))),
    )
    return [replace(node, outputs=(whole,), attributes=_without_edges(node)), cut]


def _without_edges(node: Node) -> dict[str, object]:
    return {**node.attributes, "edges": ()}


_REWRITES: Mapping[Kind, Rewrite] = {
    Op.SPLIT: _slices,
    Op.SPLIT_V: _slices,
    Op.UNPACK: _slices,
    Op.PACK: _concatenation,
    Op.SQUEEZE: _reshape,
    Op.EXPAND_DIMS: _reshape,
    Op.DEQUANTIZE: _reshape_of_real,
    Op.TRANSPOSE: _reshape_of_transpose,
    Op.SLICE: _reshape_of_same,
    Op.STRIDED_SLICE: _reshape_of_same,
    Op.PAD: _reshape_of_same,
    Op.PADV2: _reshape_of_same,
    Op.MIRROR_PAD: _reshape_of_same,
    Op.TILE: _reshape_of_same,
    Op.BROADCAST_TO: _reshape_of_same,
    Op.SPACE_TO_BATCH_ND: _padded_space_to_batch,
    Op.BATCH_TO_SPACE_ND: _cropped_batch_to_space,
}
