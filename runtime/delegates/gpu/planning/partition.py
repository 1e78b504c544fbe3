"""The plan of one partition, from its graph, the chosen candidates and their places in memory."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from runtime.delegates import plan
from runtime.delegates.base import Partition
from runtime.delegates.gpu.alternatives import layout_rules, with_candidates
from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.choose.kept_choices import KeptChoices
from runtime.delegates.gpu.graph.graph import LINE, Graph, Node
from runtime.delegates.gpu.graph.rounding import round_weights
from runtime.delegates.gpu.graph.simulation import Quantised
from runtime.delegates.gpu.layout.memory import Placement, Stage, lifetimes, place, shortage
from runtime.delegates.gpu.layout.source import assemble, function_of
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.passes import Pass, passes
from runtime.delegates.gpu.settings.options import Options


@dataclass(frozen=True, slots=True)
class Optimised:
    """The graph behind the passes. `merged` holds operators that are a part of another's node."""

    graph: Graph
    merged: Mapping[int, plan.Merged]
    removed: tuple[plan.Merged, ...]


def optimised(graph: Graph, passes: Iterable[Pass]) -> Optimised:
    """Run the passes, and compare the graphs before and behind each by the operators of their nodes."""
    merged: dict[int, plan.Merged] = {}
    removed: list[plan.Merged] = []
    for one in passes:
        after = one.run(graph)
        before = {node.id: node.sources for node in graph.nodes}
        for node in after.nodes:
            # A new node stands for operators of the one that it was made from; only a known one can gain any.
            for operator in set(node.sources) - set(before.get(node.id, node.sources)):
                merged.setdefault(operator, plan.Merged(operator, one.name, one.effect))
        gone = sorted(_operators(graph) - _operators(after))
        removed += [plan.Merged(operator, one.name, one.effect) for operator in gone]
        graph = after
    return Optimised(graph, merged, tuple(sorted(removed, key=lambda found: found.operator)))


def _operators(graph: Graph) -> set[int]:
    return {operator for node in graph.nodes for operator in node.sources}


_FOLDED = "its result is a constant, computed once when the model is planned"


@dataclass(frozen=True, slots=True)
class _Choice:
    """The candidate of a node, among how many, and what decided."""

    candidate: spec.Candidate
    count: int
    by: Literal["rule", "tuning"]


def plan_partition(
    partition: Partition,
    device: Capabilities,
    options: Options,
    way: Quantised,
    kept: KeptChoices | None = None,
) -> plan.PartitionPlan:
    """Plan the `CompiledGraph` of a partition; candidates are the defaults, or the winners of `kept`.

    Raises `DelegateError` where no kernel fits.
    """
    built = build_graph(partition, is_narrow=options.weights == "stored", way=way)
    order = passes(layout_rules(), options.skipped_passes)
    found = optimised(round_weights(built, str(options.precision)), order)
    graph, alternatives = with_candidates(found.graph, device, options)
    found = replace(found, graph=graph)
    choices = _choices(alternatives, kept)
    stages = [Stage(position, choice.candidate) for position, choice in enumerate(choices)]
    placement = place(found.graph, stages, device)
    describing = _Describing(partition, found, placement, stages, device)
    return plan.PartitionPlan(
        operators=tuple(operator.index for operator in partition.operators),
        inputs=partition.inputs,
        outputs=partition.outputs,
        nodes=tuple(describing.nodes(choices)),
        removed=(*found.removed, *_folded(partition, found)),
        arena_bytes=placement.arena.size,
        constant_bytes=placement.constant_bytes,
        values=tuple(describing.values()),
        buffers=tuple(sorted(describing.buffers(), key=lambda one: (one.first, one.offset))),
        constants=tuple(describing.constants()),
        shortage=shortage(placement, device) or "",
    )


def _choices(alternatives: Sequence[list[spec.Candidate]], kept: KeptChoices | None) -> list[_Choice]:
    if kept is None:
        return [_Choice(node[0], len(node), "rule") for node in alternatives]
    winners = [kept.winner(node) for node in kept.allowed(alternatives)]
    return [
        _Choice((winner or node)[0], len(node), "tuning" if winner else "rule")
        for winner, node in zip(winners, alternatives, strict=True)
    ]


def _folded(partition: Partition, found: Optimised) -> list[plan.Merged]:
    """Operators of the partition that never became a node."""
    known = {operator for node in found.graph.nodes for operator in node.sources}
    known.update(one.operator for one in found.removed)
    left = (operator.index for operator in partition.operators if operator.index not in known)
    return [plan.Merged(operator, "folded", _FOLDED) for operator in left]


class _Describing:
    """Describes a placed graph for its plan."""

    def __init__(
        self,
        partition: Partition,
        found: Optimised,
        placement: Placement,
        stages: Sequence[Stage],
        device: Capabilities,
    ) -> None:
        self.partition = partition
        self.graph: Graph = found.graph
        self.merged: Mapping[int, plan.Merged] = found.merged
        self.placement = placement
        self.stages = stages
        self.function_names = assemble(placement.launches, device).names

    def nodes(self, choices: Sequence[_Choice]) -> Iterator[plan.PlannedNode]:
        # The placement counts launches through all stages, of which there is one for each node, in order.
        numbers = iter(range(len(self.placement.launches)))
        for position, (node, choice) in enumerate(zip(self.graph.nodes, choices, strict=True)):
            launches = tuple(self._launch(next(numbers), one, node) for one in choice.candidate.launches)
            operators = tuple(dict.fromkeys(node.sources))
            yield plan.PlannedNode(
                position=position,
                kind=node.op.name,
                operators=operators,
                merged=tuple(self.merged[o] for o in operators if o in self.merged and len(operators) > 1),
                steps=tuple(step.op for step in node.epilogue),
                reads=tuple(dict.fromkeys(v for v in node.reads if v in self.graph.layouts)),
                writes=node.outputs,
                candidate=choice.candidate.name,
                candidates=choice.count,
                chosen=choice.by,
                launches=launches,
            )

    def _launch(self, number: int, launch: spec.Launch, node: Node) -> plan.PlannedKernel:
        pointers = (*launch.args, *launch.epilogue.operands)
        return plan.PlannedKernel(
            function=self.function_names[function_of(launch)],
            source=launch.instance.source,
            tile=launch.instance.name.partition("__")[2],
            label=launch.label,
            operators=tuple(dict.fromkeys(launch.sources)),
            units=launch.units if launch.instance.work_group is None else 0,
            global_size=launch.global_size,
            local_size=launch.local_size,
            local_bytes=launch.local_bytes,
            flops=launch.flops,
            bytes=launch.bytes,
            arguments=tuple(self._argument(number, pointer, node) for pointer in pointers),
        )

    def _argument(self, number: int, pointer: spec.Argument, node: Node) -> plan.PlannedArgument:
        stage = self.placement.owners[number]
        if isinstance(pointer, spec.PackedConstant):
            offset = self.placement.constants.by_launch[number][pointer]
            return plan.PlannedArgument(
                "constant", pointer.name, None, pointer.type.value, offset, pointer.bytes
            )
        if isinstance(pointer, spec.Scratch):
            offset = self.placement.arena.offsets[stage, pointer.key]
            return plan.PlannedArgument(
                "scratch", pointer.key, None, pointer.type.value, offset, pointer.bytes
            )
        if isinstance(pointer, spec.Check):
            offset = self.placement.checks_offset + LINE * self.placement.checks.index(pointer)
            return plan.PlannedArgument("check", pointer.message, None, "int32", offset, LINE)
        value = self._value(pointer.value if isinstance(pointer, spec.LineOf) else pointer)
        role: plan.Role = "output" if value.id in node.outputs else "input"
        return plan.PlannedArgument(role, value.name, value.id, value.type, value.offset, value.bytes)

    def values(self) -> Iterator[plan.PlannedValue]:
        return (self._value(value) for value in sorted(self.graph.layouts))

    def _value(self, number: int) -> plan.PlannedValue:
        value, layout = self.graph.values[number], self.graph.layouts[number]
        # One with other strides between channels, a transposed view, spans no more than its elements.
        elements = value.pixels * layout.pixel_stride if layout.channel_stride == 1 else value.elements
        return plan.PlannedValue(
            id=number,
            tensor=number if number < len(self.partition.subgraph.tensors) else None,
            name=value.name or f"value {number}",
            type="float16" if self.graph.is_half(number) else value.type.value,
            shape=value.shape,
            offset=self.placement.offset_of(number),
            bytes=elements * self.graph.element_bytes(number),
            dense_bytes=value.elements * self.graph.element_bytes(number),
            is_view=layout.root != number,
        )

    def buffers(self) -> Iterator[plan.PlannedBuffer]:
        for key, life in lifetimes(self.graph, self.stages).items():
            offset = self.placement.arena.offsets[key]
            if isinstance(key, int):
                yield self._value_buffer(key, offset, life.size, (life.first, life.last))
                continue
            # No stage has a negative number: that is the key of the checks (`memory._CHECKS`).
            role: plan.Role = "check" if key[0] < 0 else "scratch"
            yield plan.PlannedBuffer(role, key[1], (), offset, life.size, life.first, life.last)

    def _value_buffer(self, root: int, offset: int, size: int, life: tuple[int, int]) -> plan.PlannedBuffer:
        inside = tuple(sorted(value for value, layout in self.graph.layouts.items() if layout.root == root))
        role: plan.Role = "activation"
        if set(inside) & set(self.graph.outputs):
            role = "output"
        elif root in self.graph.inputs:
            role = "input"
        return plan.PlannedBuffer(role, self._value(root).name, inside, offset, size, *life)

    def constants(self) -> Iterator[plan.PlannedConstant]:
        for number, offsets in enumerate(self.placement.constants.offsets):
            for constant, offset in offsets.items():
                yield plan.PlannedConstant(constant.name, constant.type.value, number, offset, constant.bytes)
