"""The moves in front of a matrix product become the strides with which the product reads its operand.

Attention cuts queries, keys and values out of one result, exchanges heads and positions in front of its
products, and scales one operand; converters write an adjoint as a TRANSPOSE of the last two dimensions. The
kernels of products take any strides, so the copies are spared; a factor is applied to the product instead.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from runtime.delegates.gpu.graph.graph import LANES, Graph, Node, Step
from runtime.delegates.gpu.passes.join_moves import Place, grouped
from runtime.model.schema import BuiltinOperator as Op

_BATCH_AXES = 3
"""Most batch dimensions of extent above 1: those of a product of rank 5, which its kernels take apart."""

_CUTS = (Op.SLICE, Op.STRIDED_SLICE)


@dataclass(frozen=True, slots=True)
class _Read:
    """An operand as elements of value `source`.

    `places`: those of its batches, then one of its lines and one within a line, None for an extent of 1.
    `starts`: the first count along axes of the source. `nodes` made the operand, the last first; `factors` is
    what they multiplied it by.
    """

    source: int
    places: tuple[Place | None, ...]
    starts: Mapping[int, int]
    nodes: tuple[Node, ...]
    factors: tuple[Step, ...]

    @property
    def batches(self) -> tuple[int, ...]:
        return tuple(place.extent for place in self.places[:-2] if place is not None)


def fold_transpose(graph: Graph) -> Graph:
    """Rewrite TRANSPOSE, SLICE, RESHAPE and MUL by a constant number → BATCH_MATMUL.

    The product gets the attributes `x_places` and `x_starts` or `z_places` and `z_starts`, where the operand
    that it reads has its elements, and `batches`, the extents of its batch dimensions as both operands then
    see them.
    """
    producers = graph.producers()
    folded: dict[int, Node] = {}
    gone: set[int] = set()
    for node in graph.nodes:
        if node.op == Op.BATCH_MATMUL and _matches_batches(node, graph):
            found = _operands(node, graph, producers)
            folded[node.id] = _reading(node, found)
            gone.update(made.id for operand in found.values() for made in operand.nodes)
    return graph.with_nodes(_read_nodes(graph, [folded.get(node.id, node) for node in graph.nodes], gone))


def _read_nodes(graph: Graph, nodes: Sequence[Node], gone: set[int]) -> list[Node]:
    """Return the nodes without those of `gone` whose results nobody reads any more."""
    read, kept = {*graph.outputs}, list[Node]()
    for node in reversed(nodes):
        if node.id not in gone or not read.isdisjoint(node.outputs):
            kept.insert(0, node)
            read.update(node.reads)
    return kept


def _matches_batches(node: Node, graph: Graph) -> bool:
    """Return True if neither operand is broadcast, so that one numbering of the batches serves both."""
    count = prod(graph.values[node.outputs[0]].shape[:-2])
    return all(prod(graph.values[value].shape[:-2]) == count for value in node.inputs if value is not None)


def _operands(node: Node, graph: Graph, producers: Mapping[int, Node]) -> dict[str, _Read]:
    """Return the operands, `x` and `z`, that can be read before their moves; they agree in `batches`."""
    found: dict[str, _Read] = {}
    for name, value in zip("xz", node.inputs, strict=True):
        if value is None:
            continue
        for operand in _reads(value, graph, producers):
            if all(operand.batches == other.batches for other in found.values()):
                found[name] = operand
                break
    return found


def _reads(value: int, graph: Graph, producers: Mapping[int, Node]) -> Iterator[_Read]:
    """Yield the ways to read a value in front of the moves that made it, the most moves first."""
    chain: list[Node] = []
    at = value
    while (made := producers.get(at)) is not None and (_is_move(made) or _factor(made) is not None):
        chain.append(made)
        at = made.reads[0]
    for count in range(len(chain), 0, -1):
        nodes = tuple(chain[:count])
        found = _followed(value, nodes, graph)
        # A chain without one of these has no copy that folding would save.
        if found is not None and any(node.op in (Op.TRANSPOSE, *_CUTS) for node in nodes):
            yield found


def _is_move(node: Node) -> bool:
    if node.epilogue or len(node.reads) != 1:
        return False
    if node.op in _CUTS:
        return all(stride == 1 for stride in node.attributes["strides"])
    return node.op == Op.RESHAPE or (node.op == Op.TRANSPOSE and "perm" in node.attributes)


def _factor(node: Node) -> Step | None:
    """Return the step of a node that multiplies its operand by a number, and does nothing else."""
    is_scale = [step.op for step in node.epilogue] == ["LOAD", "MUL_SCALAR", "SATURATE"]
    return node.epilogue[1] if is_scale and not node.inputs else None


def _followed(value: int, nodes: Sequence[Node], graph: Graph) -> _Read | None:
    """Return where `value` lies in what the last of `nodes` reads; None if no strides say so."""
    source = nodes[-1].reads[0]
    shape = graph.values[source].shape
    places = [Place(extent, axis, 1) for axis, extent in enumerate(shape)]
    starts, factors = dict.fromkeys(range(len(shape)), 0), list[Step]()
    for node in reversed(nodes):
        axes = grouped(places, graph.values[node.reads[0]].shape)
        if axes is None:
            return None
        if node.op in _CUTS:
            axes = _cut(node, axes, graph.values[node.outputs[0]].shape, starts)
        elif node.op == Op.TRANSPOSE:
            axes = [axes[axis] for axis in node.attributes["perm"]]
        elif (factor := _factor(node)) is not None:
            factors.append(factor)
        if axes is None:
            return None
        places = [place for axis in axes for place in axis]
    axes = grouped(places, graph.values[value].shape)
    if axes is None or any(len(axis) > 1 for axis in axes[-2:]):
        return None
    batches = tuple(place for axis in axes[:-2] for place in axis)
    line, within = (axis[0] if axis else None for axis in axes[-2:])
    found = _Read(source, (*batches, line, within), starts, tuple(nodes), tuple(factors))
    return found if len(batches) <= _BATCH_AXES and _in_vectors(found, shape) else None


def _cut(
    node: Node, axes: Sequence[tuple[Place, ...]], made: Sequence[int], starts: dict[int, int]
) -> list[tuple[Place, ...]] | None:
    """Return the places of a cut's axes, counting first elements in `starts`; None if one ends inside one."""
    begins, kept = node.attributes["starts"], node.attributes["kept"]
    extents = {axis: extent for axis, extent in zip(kept, made, strict=True) if axis is not None}
    found: dict[int, tuple[Place, ...]] = {}
    for axis, places in enumerate(axes):
        extent, whole = extents.get(axis, 1), prod(place.extent for place in places)
        first = begins[axis]
        if extent == whole:
            found[axis] = places
            continue
        inner = prod(place.extent for place in places[1:])
        # A range that begins or ends within the lower digits is not described by strides.
        if extent != 1 and (extent % inner or first % inner):
            return None
        found[axis] = () if extent == 1 else (replace(places[0], extent=extent // inner), *places[1:])
        # Splits the index of the first element into digits, the lowest first.
        for place in reversed(places):
            first, count = divmod(first, place.extent)
            starts[place.axis] += count * place.step
    return [() if axis is None else found[axis] for axis in kept]


def _in_vectors(found: _Read, shape: Sequence[int]) -> bool:
    """Return True if lines, or what is within them, are runs of the source's last axis in whole vectors.

    Kernels read such runs, and behind their ends what a row of the source is padded with; a matrix without
    would be gathered number by number.
    """
    last = len(shape) - 1
    on_last = [place for place in found.places if place is not None and place.axis == last]
    runs = [
        place for place in found.places[-2:] if place is not None and (place.axis, place.step) == (last, 1)
    ]
    if not runs:
        return False
    steps = (found.starts[last], *(place.step for place in on_last if place is not runs[0]))
    is_whole = runs[0].extent == shape[last]
    return is_whole or not any(number % LANES for number in (runs[0].extent, *steps))


def _reading(node: Node, found: Mapping[str, _Read]) -> Node:
    if not found:
        return node
    inputs = tuple(
        found[name].source if name in found else value for name, value in zip("xz", node.inputs, strict=True)
    )
    batches = next(iter(found.values())).batches
    attributes = {
        **node.attributes,
        **{f"{name}_places": operand.places for name, operand in found.items()},
        **{f"{name}_starts": tuple(operand.starts.items()) for name, operand in found.items()},
        "batches": (1,) * (_BATCH_AXES - len(batches)) + batches,
    }
    moves = {made.id: made for operand in found.values() for made in reversed(operand.nodes)}
    sources = dict.fromkeys((*(index for made in moves.values() for index in made.sources), *node.sources))
    factors = tuple(step for operand in found.values() for step in operand.factors)
    return replace(
        node,
        inputs=inputs,
        attributes=attributes,
        sources=tuple(sources),
        # A product is linear in each operand, so an operand's factor may as well multiply the result.
        epilogue=(*factors, *node.epilogue),
    )
