"""Decides where every value lies: rows of channels padded to 16, views instead of copies where shapes allow.

The graph's inputs and outputs are dense (the host's layout). A concatenation's parts are written into it by
their producers, a reshape that keeps the order of the padded rows is a view, a transposition of a graph input
becomes strides of a reader that takes any layout. What remains is copied by RESHAPE nodes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from runtime.delegates.gpu.graph.graph import LANES, LINE, Graph, Layout, Node, Value, round_up
from runtime.delegates.gpu.passes.remove_identity import renamed
from runtime.model.schema import BuiltinOperator


@dataclass(frozen=True, slots=True)
class LayoutRules:
    """The abilities of the kernel families, by node."""

    applies_epilogue: Callable[[Node, Graph], bool]
    reads_any_layout: Callable[[Node, Graph], bool]
    writes_dense: Callable[[Node, Graph], bool]


def assign_layouts(graph: Graph, rules: LayoutRules) -> Graph:
    """Return the graph with `layouts` filled, views removed, and copies inserted.

    The graph's border comes first: the copies that it needs take part in the placement.
    """
    graph = _pack_inputs(graph, rules)
    graph = _unpack_outputs(graph, rules)
    return _Placement(graph, rules).run()


def _copy(source: int, target: int, node_id: int, sources: tuple[int, ...]) -> Node:
    return Node(node_id, BuiltinOperator.RESHAPE, (source,), (target,), sources=sources)


def _is_transposed_image(node: Node, graph: Graph) -> bool:
    """Return True for a graph input [1, C, H, W] seen as [1, H, W, C]."""
    if node.op != BuiltinOperator.TRANSPOSE or node.inputs[0] not in graph.inputs:
        return False
    shape = graph.values[node.inputs[0]].shape
    return tuple(node.attributes.get("perm", ())) == (0, 2, 3, 1) and shape[0] == 1


def _pack_inputs(graph: Graph, rules: LayoutRules) -> Graph:
    """Readers that need padded rows read a packed copy of an unaligned graph input."""
    nodes, added, fresh = list(graph.nodes), [], graph.fresh_id()
    for source in graph.inputs:
        value = graph.values[source]
        # Dense rows of whole vectors need no padding.
        if value.channels % LANES == 0:
            continue
        readers = [
            node for node in nodes if source in node.reads and not _reads_as_is(node, source, graph, rules)
        ]
        if not readers:
            continue
        packed, fresh = replace(value, id=fresh), fresh + 1
        added.append(packed)
        affected = {node.id for node in readers}
        nodes = [renamed(node, {source: packed.id}) if node.id in affected else node for node in nodes]
        # Negative numbers collide with no other node, since values' numbers are unique.
        nodes.insert(0, _copy(source, packed.id, -packed.id - 1, readers[0].sources[:1]))
    return graph.with_nodes(nodes, added)


def _reads_as_is(node: Node, source: int, graph: Graph, rules: LayoutRules) -> bool:
    direct = node.inputs[:1] == (source,) and node.reads.count(source) == 1
    return direct and (node.op == BuiltinOperator.RESHAPE or rules.reads_any_layout(node, graph))


def _unpack_outputs(graph: Graph, rules: LayoutRules) -> Graph:
    """Insert a copy for an unaligned graph output that has other readers or cannot be written in place."""
    nodes, added, fresh = list(graph.nodes), [], graph.fresh_id()
    for target in dict.fromkeys(graph.outputs):
        value, producer = graph.values[target], graph.producers().get(target)
        readers = [node for node in nodes if target in node.reads]
        aligned = value.channels % LANES == 0 or value.pixels == 1
        if producer is not None and (aligned or (not readers and _writes_as_is(producer, graph, rules))):
            continue
        if producer is None:
            raise ValueError(f"output {target} {value.name!r} is not computed by this partition")
        inner, fresh = replace(value, id=fresh), fresh + 1
        added.append(inner)
        nodes = [_writing(renamed(node, {target: inner.id}), target, inner.id) for node in nodes]
        nodes.append(_copy(inner.id, target, -inner.id - 1, producer.sources[-1:]))
    return graph.with_nodes(nodes, added)


def _writes_as_is(node: Node, graph: Graph, rules: LayoutRules) -> bool:
    own = node.op in (BuiltinOperator.RESHAPE, BuiltinOperator.CONCATENATION)
    return own or rules.writes_dense(node, graph)


def _writing(node: Node, old: int, new: int) -> Node:
    return replace(node, outputs=tuple(new if value == old else value for value in node.outputs))


class _Placement:
    """The state of one placement: layouts found so far, nodes to keep."""

    def __init__(self, graph: Graph, rules: LayoutRules) -> None:
        self.graph = graph
        self.rules = rules
        self.consumers = graph.consumers()
        self.fixed = {*graph.inputs, *graph.outputs}
        self.layouts = {
            value.id: self._own_layout(value) for value in graph.values.values() if not value.is_constant
        }
        self.slots: dict[int, Value] = {}
        self.fresh = graph.fresh_id()

    def run(self) -> Graph:
        """Place from the last node to the first: a reader decides where its input lies."""
        nodes: list[Node] = []
        for node in reversed(self.graph.nodes):
            nodes[:0] = self._placed(node)
        graph = self.graph.with_nodes(nodes, self.slots.values())
        layouts = {v: self._resolved(v) for v in graph.values if v in self.layouts}
        # Of a concatenation that nobody reads no node is left, but its parts lie in it.
        for root in {layout.root for layout in layouts.values()} - layouts.keys():
            layouts[root] = self.layouts[root]
        values = {v: self.graph.values[v] for v in layouts if v not in graph.values}
        return replace(graph, layouts=layouts, values={**graph.values, **values})

    def _own_layout(self, value: Value) -> Layout:
        """Return the layout of a value in a buffer of its own: dense at the graph's border, else padded rows.

        One pixel of an output counts as padded: `round_up` of its buffer leaves room behind it.
        """
        boundary = value.id in self.fixed
        stride = value.channels if boundary else round_up(value.channels)
        output = value.id in self.graph.outputs
        padded = stride % LANES == 0 or (output and value.pixels == 1)
        return Layout(value.id, 0, stride, padded=padded)

    def _resolved(self, value: int) -> Layout:
        """Follow a chain of views to the value that owns the buffer."""
        layout = self.layouts[value]
        while layout.root != value:
            value = layout.root
            parent = self.layouts[value]
            layout = replace(layout, root=parent.root, offset=layout.offset + parent.offset)
        return layout

    def _is_free(self, value: int) -> bool:
        data = self.graph.values[value]
        return not data.is_constant and value not in self.fixed and self.layouts[value].root == value

    def _placed(self, node: Node) -> list[Node]:
        if node.op == BuiltinOperator.CONCATENATION:
            return self._concatenation(node)
        if node.op == BuiltinOperator.RESHAPE and not node.epilogue:
            return [] if self._reshape_is_view(node) else [node]
        if _is_transposed_image(node, self.graph) and self._transpose_is_view(node):
            return []
        return [node]

    def _transpose_is_view(self, node: Node) -> bool:
        (source,), (target,) = node.inputs, node.outputs
        readers = self.consumers[target]
        if source is None or target in self.fixed or not readers:
            return False
        if not all(self._reads_strided(reader, target) for reader in readers):
            return False
        _, _, height, width = self.graph.values[source].shape
        self.layouts[target] = Layout(source, 0, 1, height * width, padded=False)
        return True

    def _reads_strided(self, reader: Node, value: int) -> bool:
        direct = reader.inputs[:1] == (value,) and reader.reads.count(value) == 1
        return direct and self.rules.reads_any_layout(reader, self.graph)

    def _reshape_is_view(self, node: Node) -> bool:
        """Let one side lie in the other's buffer, and return whether that was possible.

        The source moves into the target first: the target's place was fixed by what reads it.
        """
        source, target = node.inputs[0], node.outputs[0]
        if source is None:
            return False
        before, after = self.graph.values[source], self.graph.values[target]
        if self._is_free(source) and (stride := self._stride_within(before, after, self.layouts[target])):
            self.layouts[source] = Layout(target, 0, stride)
            return True
        if self._is_free(target) and not before.is_constant:
            layout = self.layouts[source]
            if (
                layout.root == source
                and (stride := self._stride_within(after, before, layout))
                and layout.padded
            ):
                self.layouts[target] = Layout(source, 0, stride, padded=True)
                return True
        return False

    @staticmethod
    def _stride_within(inner: Value, outer: Value, layout: Layout) -> int:
        """Pixel stride of `inner` lying in the buffer of `outer`, or 0 where the rows do not fit."""
        if layout.channel_stride != 1 or not layout.padded:
            return 0
        if inner.channels == outer.channels:
            return layout.pixel_stride
        dense = outer.pixels == 1 or layout.pixel_stride == outer.channels
        # Without gaps between its rows a buffer may be cut into other rows, if each begins on a vector.
        return inner.channels if dense and inner.channels % LANES == 0 else 0

    def _concatenation(self, node: Node) -> list[Node]:
        """Give each part its place in the result; what cannot be written there by its producer is copied.

        A value that occurs twice can lie in one place only, so its second occurrence is a copy.
        """
        (target,), axis = node.outputs, node.attributes["axis"]
        shape = self.graph.values[target].shape
        nodes, start, seen = [], 0, set()
        for position, source in enumerate(node.reads):
            part = self.graph.values[source]
            last = position == len(node.reads) - 1
            layout = self._part_layout(part, target, axis, start)
            # Along any axis but the last, a part makes `groups` runs of `group` pixels in the result.
            group = prod(part.shape[axis:-1]) if axis < len(shape) - 1 else part.pixels
            groups = part.pixels // group
            if source not in seen and self._fits(part, layout, axis == len(shape) - 1, last, groups):
                self.layouts[source] = replace(layout, padded=True)
            else:
                slot = self._slot(part, layout)
                whole = prod(shape[axis:-1]) if axis < len(shape) - 1 else part.pixels
                nodes.append(self._slot_copy(node, source, slot, group, whole * layout.pixel_stride, last))
            seen.add(source)
            start += part.shape[axis]
        return nodes

    def _part_layout(self, part: Value, target: int, axis: int, start: int) -> Layout:
        whole = self.layouts[target]
        if axis == len(part.shape) - 1:
            return Layout(target, start, whole.pixel_stride, padded=False)
        offset = start * prod(part.shape[axis + 1 : -1]) * whole.pixel_stride
        return Layout(target, offset, whole.pixel_stride, padded=whole.padded)

    def _fits(self, part: Value, layout: Layout, along_channels: bool, last: bool, groups: int) -> bool:
        """Return True if the producer of `part` can write into the concatenation itself."""
        # The table of layers names places by whole lines.
        if not self._is_free(part.id) or layout.offset * part.type.size % LINE:
            return False
        if not along_channels:
            return layout.padded and groups == 1
        aligned = layout.offset % LANES == 0 and layout.pixel_stride % LANES == 0
        # Producers store whole vectors, so only the last part may end within one.
        return aligned and (part.channels % LANES == 0 or last)

    def _slot(self, part: Value, layout: Layout) -> int:
        # Not a constant itself, even where a constant is copied there.
        slot = replace(part, id=self.fresh, data=None)
        self.fresh += 1
        self.slots[slot.id] = slot
        self.layouts[slot.id] = layout
        return slot.id

    def _slot_copy(self, node: Node, source: int, slot: int, group: int, stride: int, last: bool) -> Node:
        layout = self.layouts[slot]
        part = self.graph.values[source]
        end = layout.offset % layout.pixel_stride + part.channels
        # Padded lanes behind the last part must be finite, and no other node writes them.
        tail = round_up(end) - end if last and self.layouts[layout.root].padded else 0
        attributes = {"group_pixels": group, "group_stride": stride, "tail": tail}
        copy = _copy(source, slot, -slot - 1, node.sources)
        return replace(copy, attributes=attributes)
