"""The norm of a layer over its channels becomes one node, which reads x once from memory.

Converters write (x - mean) / sqrt(variance + epsilon) in eleven operators, as x * r + (0 - r * mean) with r
for one over the root: two means, and numbers of each pixel that are broadcast over its channels. Scale and
offset of the channels follow as steps of the epilogue.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime.delegates.gpu.graph.graph import Graph, Node
from runtime.model.schema import BuiltinOperator as Op


def fuse_norms(graph: Graph) -> Graph:
    """Rewrite the addition that ends each norm, and drop what nothing else reads.

    The node is an L2_NORMALIZATION with the attribute `epsilon`.
    """
    producers, consumers = graph.producers(), graph.consumers()
    rewritten: dict[int, Node] = {}
    gone: set[int] = set()
    for node in graph.nodes:
        trail = _Trail(graph, producers)
        try:
            source, epsilon = _norm(node, trail)
        # Includes the KeyError for a value that no node of the partition makes.
        except LookupError:
            continue
        own = {*trail.nodes, node.id}
        made = [value for each in trail.nodes.values() for value in each.outputs]
        # What anything else reads has to be computed all the same.
        if any({reader.id for reader in consumers[value]} - own or value in graph.outputs for value in made):
            continue
        rewritten[node.id] = Node(
            node.id,
            Op.L2_NORMALIZATION,
            (source,),
            node.outputs,
            {"epsilon": epsilon},
            # LOAD and ADD belong to the norm itself.
            node.epilogue[2:],
            tuple(sorted({index for each in (*trail.nodes.values(), node) for index in each.sources})),
        )
        gone |= trail.nodes.keys()
    return graph.with_nodes(rewritten.get(node.id, node) for node in graph.nodes if node.id not in gone)


@dataclass(frozen=True, slots=True)
class _Trail:
    """A walk from a value to those it was made of; `nodes` are the nodes that were passed, by id.

    Every method raises `LookupError` where the graph is another.
    """

    graph: Graph
    producers: Mapping[int, Node]
    nodes: dict[int, Node] = field(default_factory=dict)

    def step(self, value: int, op: str) -> tuple[int, tuple[int, ...], tuple[float, ...]]:
        """Return what the only step that made a value loads, its operands and its parameters."""
        return _loaded(self._passed(value), op)

    def behind(self, value: int) -> int:
        """Return the value of which this one is a RESHAPE, or itself where means kept their dimension."""
        return self._input(value, Op.RESHAPE) if self.producers[value].op is Op.RESHAPE else value

    def mean(self, value: int) -> int:
        """Return the value of which this one is the mean over the channels of each pixel."""
        source = self._input(value, Op.MEAN)
        shape, axes = self.graph.values[source].shape, self.nodes[self.producers[value].id].attributes["axes"]
        if {axis for axis, extent in enumerate(shape) if extent > 1 and axis in axes} != {len(shape) - 1}:
            raise LookupError("another mean")
        return source

    def _input(self, value: int, op: Op) -> int:
        node = self._passed(value)
        if node.op is not op or node.epilogue or node.inputs[0] is None:
            raise LookupError(f"no {op.name}")
        return node.inputs[0]

    def _passed(self, value: int) -> Node:
        node = self.producers[value]
        self.nodes[node.id] = node
        return node


def _norm(node: Node, trail: _Trail) -> tuple[int, float]:
    """Return x and epsilon of the norm that ends with this addition. Raises `LookupError` for other nodes."""
    scaled, (shift,), _ = _loaded(node, "ADD")
    source, (factor,), _ = trail.step(scaled, "MUL")
    root = trail.behind(factor)
    zero, (product,), _ = trail.step(trail.behind(shift), "SUB")
    again, (mean,), _ = trail.step(product, "MUL")
    variance, _, _ = trail.step(root, "RSQRT")
    squares, _, (epsilon,) = trail.step(variance, "ADD_SCALAR")
    begun, (subtracted,), _ = trail.step(trail.mean(squares), "SQUARED_DIFFERENCE")
    data = trail.graph.values[zero].data
    same = again == root and begun == source and trail.behind(subtracted) == mean
    if not same or trail.mean(mean) != source or data is None or data.any():
        raise LookupError("another formula")
    for value in (factor, shift, subtracted):
        if trail.graph.values[value].shape != (*trail.graph.values[source].shape[:-1], 1):
            raise LookupError("another broadcast")
    return source, epsilon


def _loaded(node: Node, op: str) -> tuple[int, tuple[int, ...], tuple[float, ...]]:
    """Return what a node loads, and operands and parameters of its only step but for clamps."""
    steps = node.epilogue
    if node.inputs or [step.op for step in steps[:2]] != ["LOAD", op]:
        raise LookupError(f"no {op}")
    if any(step.op != "SATURATE" for step in steps[2:]):
        raise LookupError("a further step")
    return steps[0].operands[0], steps[1].operands, steps[1].parameters
