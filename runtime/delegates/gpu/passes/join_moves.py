"""Chains of TRANSPOSE and RESHAPE become one copy, or a RESHAPE where they restore the order of the elements.

Networks written for channels first, converted to channels last, transpose between the two around each
operator: back and forth around a convolution of tokens, and three times for a shuffle of channels. Between
windows of unlike sizes, which no one copy makes of each other, two copies of whole rows remain.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import prod
from typing import Final

from runtime.delegates.gpu.graph.graph import Graph, Node, Value
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
    return _Joining(graph).run()


class _Joining:
    """The chains so far and their nodes' fate. `in_front`: new nodes by the one that they stand before."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values = dict(graph.values)
        self.moved: dict[int, _Moved] = {}
        self.rewritten: dict[int, Node] = {}
        self.in_front: dict[int, Node] = {}
        self.fresh_values = count(graph.fresh_id())
        self.fresh_nodes = count(max((node.id for node in graph.nodes), default=-1) + 1)

    def run(self) -> Graph:
        """Follow all chains, and rewrite the graph."""
        for node in self.graph.nodes:
            found = self._followed(node)
            if found is None:
                continue
            self.moved[node.outputs[0]] = found
            if node.op == Op.TRANSPOSE and found.turns >= _JOINED:
                joined = _joined(found, node, self.values)
                self.rewritten |= {} if joined is None else {node.id: joined}
        nodes = [self.rewritten.get(node.id, node) for node in self.graph.nodes]
        placed = [one for node in nodes for one in (self.in_front.get(node.id), node) if one is not None]
        return _without_unread(self.graph, placed, self.values.values()) if self.rewritten else self.graph

    def _followed(self, node: Node) -> _Moved | None:
        """Return the chain that ends with this TRANSPOSE or RESHAPE, or begins there; else None."""
        # An epilogue's operands lie in the order of this node's result, which a joined copy may not have.
        if node.op not in (Op.TRANSPOSE, Op.RESHAPE) or node.epilogue or len(node.reads) != 1:
            return None
        (operand,) = node.reads
        shape = self.values[operand].shape
        begun = _Moved(operand, tuple(Place(extent, axis, 1) for axis, extent in enumerate(shape)), (), 0)
        chain = self.moved.get(operand, begun)
        if node.op == Op.RESHAPE:
            return replace(chain, nodes=(*chain.nodes, node))
        axes = grouped(chain.places, shape)
        if axes is None:
            chain = self._halved(chain, node, shape) or begun
            axes = [(place,) for place in chain.places]
        turned = tuple(place for axis in node.attributes["perm"] for place in axes[axis])
        return _Moved(chain.source, turned, (*chain.nodes, node), chain.turns + 1)

    def _halved(self, chain: _Moved, node: Node, shape: Sequence[int]) -> _Moved | None:
        """Begin a chain behind one whose places the axes of `shape` do not end with, for the transposition
        `node`.

        Between them lies a copy whose last axis is the source's, so that both move whole rows of it: a
        partition of an image into windows, followed by one into others. None where that axis is not whole.
        """
        source, knots = self.values[chain.source], _knots(chain.places, shape)
        last = len(source.shape) - 1
        rows = [knot for knot in knots if [(one.axis, one.step) for one in knot.places] == [(last, 1)]]
        # Rows that come last already: the copy between would only be the chain as it is.
        if not chain.turns or source.is_constant or not rows or rows[0] is knots[-1]:
            return None
        ordered = [*(knot for knot in knots if knot is not rows[0]), rows[0]]
        between, number = next(self.fresh_values), next(self.fresh_nodes)
        extents = tuple(prod(shape[axis] for axis in knot.axes) for knot in ordered)
        self.values[between] = replace(source, id=between, shape=extents)
        places = tuple(place for knot in ordered for place in knot.places)
        copy = replace(chain.nodes[-1], id=number, op=Op.TRANSPOSE, outputs=(between,))
        joined = _joined(replace(chain, places=places), copy, self.values)
        if joined is None:
            return None
        self.in_front[node.id] = joined
        found = {
            axis: Place(shape[axis], position, prod(shape[behind] for behind in knot.axes[i + 1 :]))
            for position, knot in enumerate(ordered)
            for i, axis in enumerate(knot.axes)
        }
        return _Moved(between, tuple(found[axis] for axis in range(len(shape))), (), 1)


@dataclass(frozen=True, slots=True)
class _Knot:
    """Neighbouring axes that have together the elements of neighbouring places, and of no fewer."""

    axes: list[int]
    places: list[Place]


def _knots(places: Sequence[Place], shape: Sequence[int]) -> list[_Knot]:
    """Return the shortest runs of axes that end where places end; both have the same number of elements."""
    found, rest = [_Knot([], [])], [place for place in places if place.extent != 1]
    wanted = had = 1
    for axis, extent in enumerate(shape):
        if wanted == had and extent != 1 and found[-1].places:
            found.append(_Knot([], []))
        found[-1].axes.append(axis)
        wanted *= extent
        while had < wanted:
            found[-1].places.append(rest.pop(0))
            had *= found[-1].places[-1].extent
    return found


def grouped(places: Sequence[Place], shape: Sequence[int]) -> list[tuple[Place, ...]] | None:
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


def _joined(found: _Moved, node: Node, values: Mapping[int, Value]) -> Node | None:
    """Return `node` reading a chain's source instead; None if an axis of the result ends in a place."""
    axes = grouped(found.places, values[node.outputs[0]].shape)
    if axes is None:
        return None
    shape = values[found.source].shape
    sources = tuple(index for one in found.nodes for index in one.sources)
    node = replace(node, inputs=(found.source,), sources=sources)
    places = [place for axis in axes for place in axis]
    if _is_in_order(places, shape):
        return replace(node, op=Op.RESHAPE, attributes={})
    # Axes of extent 1 have no place, so any such axis of the source will do; -1 fails the test below.
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


def _without_unread(graph: Graph, nodes: Sequence[Node], values: Iterable[Value]) -> Graph:
    """Return the graph of `nodes`, without moves whose results only the rewritten nodes' chains had read."""
    read = {*graph.outputs}
    kept: list[Node] = []
    for node in reversed(nodes):
        is_move = node.op in (Op.TRANSPOSE, Op.RESHAPE) and not node.epilogue
        if not is_move or not read.isdisjoint(node.outputs):
            kept.append(node)
            read.update(node.reads)
    return graph.with_nodes(reversed(kept), values)
