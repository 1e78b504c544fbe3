"""Chains of TRANSPOSE and RESHAPE become one copy, or a RESHAPE where they restore the order of the elements.

Networks written for channels first, converted to channels last, transpose between the two around each
operator: back and forth around a convolution of tokens, and three times for a shuffle of channels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from runtime.delegates.gpu.graph.graph import Graph, Node
from runtime.model.schema import BuiltinOperator as Op

_JOINED: Final = 2
"""Transpositions of a chain from which on it is rewritten. One alone has a kernel already; larger leaves
copies that could be one."""


@dataclass(frozen=True, slots=True)
class Place:
    """A digit of an index: it counts to `extent`, each count `step` elements along `axis` of the source."""

    extent: int
    axis: int
    step: int


@dataclass(frozen=True, slots=True)
class _Moved:
    """A value that holds the elements of `source` in another order, that of `places`, the highest first.

    `nodes` are those of the chain, of which `turns` are transpositions.
    """

    source: int
    places: tuple[Place, ...]
    nodes: tuple[Node, ...]
    turns: int


def join_moves(graph: Graph) -> Graph:
    """Let the last transposition of each chain read the chain's source; what nothing reads then goes.

    The rewritten node has the attribute `places`, those of each axis of its result, or `perm` where it is a
    TRANSPOSE of the source, or is a RESHAPE where the order is the source's.
    """
    moved: dict[int, _Moved] = {}
    rewritten: dict[int, Node] = {}
    for node in graph.nodes:
        found = _followed(node, graph, moved)
        if found is None:
            continue
        moved[node.outputs[0]] = found
        if node.op == Op.TRANSPOSE and found.turns >= _JOINED:
            joined = _joined(found, graph)
            rewritten |= {} if joined is None else {node.id: joined}
    return _without_unread(graph, [rewritten.get(node.id, node) for node in graph.nodes], rewritten)


def _followed(node: Node, graph: Graph, moved: dict[int, _Moved]) -> _Moved | None:
    """Return the chain that ends with this TRANSPOSE or RESHAPE, which may begin it; None for other nodes."""
    if node.op not in (Op.TRANSPOSE, Op.RESHAPE) or node.epilogue or len(node.reads) != 1:
        return None
    (operand,) = node.reads
    shape = graph.values[operand].shape
    begun = _Moved(operand, tuple(Place(extent, axis, 1) for axis, extent in enumerate(shape)), (), 0)
    chain = moved.get(operand, begun)
    if node.op == Op.RESHAPE:
        return replace(chain, nodes=(*chain.nodes, node))
    axes = _grouped(chain.places, shape)
    if axes is None:
        chain = begun
        axes = [(place,) for place in begun.places]
    turned = tuple(place for axis in node.attributes["perm"] for place in axes[axis])
    return _Moved(chain.source, turned, (*chain.nodes, node), chain.turns + 1)


def _grouped(places: Sequence[Place], shape: Sequence[int]) -> list[tuple[Place, ...]] | None:
    """Return the places of each axis of `shape`, split at axes that end inside one; None if that fails."""
    rest = [place for place in places if place.extent != 1]
    found: list[tuple[Place, ...]] = []
    for extent in shape:
        group: list[Place] = []
        missing = extent
        while missing > 1 and rest:
            place = rest.pop(0)
            if missing % place.extent:
                # The axis takes the higher counts of this place, and leaves the lower ones to the next.
                lower, odd = divmod(place.extent, missing)
                if odd:
                    return None
                rest.insert(0, replace(place, extent=lower))
                place = Place(missing, place.axis, place.step * lower)
            group.append(place)
            missing //= place.extent
        if missing != 1:
            return None
        found.append(tuple(group))
    return found


def _joined(found: _Moved, graph: Graph) -> Node | None:
    """Return the one node in place of a chain; None if an axis of the result ends inside a place."""
    *_, last = found.nodes
    axes = _grouped(found.places, graph.values[last.outputs[0]].shape)
    if axes is None:
        return None
    shape = graph.values[found.source].shape
    sources = tuple(index for node in found.nodes for index in node.sources)
    node = replace(last, inputs=(found.source,), sources=sources)
    places = [place for axis in axes for place in axis]
    if _is_in_order(places, shape):
        return replace(node, op=Op.RESHAPE, attributes={})
    ones = iter([axis for axis, extent in enumerate(shape) if extent == 1])
    perm = tuple(axis[0].axis if axis else next(ones, -1) for axis in axes)
    if sorted(perm) == list(range(len(shape))) and all(len(axis) <= 1 for axis in axes):
        return replace(node, attributes={"perm": perm})
    return replace(node, attributes={"places": tuple(axes)})


def _is_in_order(places: Sequence[Place], shape: Sequence[int]) -> bool:
    """Return True if the places, the highest first, count through a tensor of `shape` in row-major order."""
    step = 1
    strides = [0] * len(shape)
    for axis in reversed(range(len(shape))):
        strides[axis] = step
        step *= shape[axis]
    expected = 1
    for place in reversed(places):
        if place.step * strides[place.axis] != expected:
            return False
        expected *= place.extent
    return True


def _without_unread(graph: Graph, nodes: Sequence[Node], rewritten: dict[int, Node]) -> Graph:
    """Return the graph of `nodes`, without moves whose results only the rewritten nodes' chains had read."""
    if not rewritten:
        return graph
    read = {*graph.outputs}
    kept: list[Node] = []
    for node in reversed(nodes):
        is_move = node.op in (Op.TRANSPOSE, Op.RESHAPE) and not node.epilogue
        if not is_move or not read.isdisjoint(node.outputs):
            kept.append(node)
            read.update(node.reads)
    return graph.with_nodes(reversed(kept))
