"""Places a partition's buffers by their lifetimes, and its constants, as plain data for a backend."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from runtime.common.arena import Arena, Lifetime, assign
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph.graph import LINE, Graph, round_up
from runtime.delegates.gpu.graph.parameters import word
from runtime.delegates.gpu.layout.constants import ConstantBuffers, divide
from runtime.delegates.gpu.layout.source import Source, function_of, parameters_of
from runtime.delegates.gpu.lowering import spec
from runtime.errors import DelegateError


@dataclass(frozen=True, slots=True)
class Stage:
    """One node's candidate, at the node's position in the graph; the tuner puts several at one position."""

    position: int
    candidate: spec.Candidate


BufferKey: TypeAlias = "int | tuple[int, str]"
"""The root value of a buffer, or the number of a stage and the key of its scratch."""

_CHECKS: BufferKey = (-1, "checks")
"""The buffer of the checks, which belongs to no stage: one line for each."""


def lifetimes(graph: Graph, stages: Sequence[Stage]) -> dict[BufferKey, Lifetime]:
    """When the graph's buffers and the stages' scratch are in use, by node position; sizes in bytes.

    A buffer lives as long as any view of it: inputs from before the first node, outputs to behind the last.
    """
    spans: dict[int, list[int]] = {}
    for position, node in enumerate(graph.nodes):
        for value in (*node.reads, *node.outputs):
            # Constants have no layout: they lie in buffers of their own.
            if value in graph.layouts:
                spans.setdefault(graph.layouts[value].root, []).append(position)
    for value in graph.inputs:
        spans.setdefault(graph.layouts[value].root, []).append(-1)
    for value in graph.outputs:
        spans.setdefault(graph.layouts[value].root, []).append(len(graph.nodes))
    found: dict[BufferKey, Lifetime] = {
        root: Lifetime(extent(graph, root), min(span), max(span)) for root, span in spans.items()
    }
    for number, stage in enumerate(stages):
        for scratch in _scratches(stage.candidate.launches):
            life = Lifetime(scratch.bytes, stage.position, stage.position)
            # By stage: those that the tuner puts at one position live together there, and share no memory.
            found[number, scratch.key] = life
    if checks := checks_of(stages):
        # For the whole run, because the flags are read only after the last node.
        found[_CHECKS] = Lifetime(len(checks) * LINE, -1, len(graph.nodes))
    return found


def checks_of(stages: Sequence[Stage]) -> tuple[spec.Check, ...]:
    """Return the checks of all launches, in the order in which these run."""
    arguments = (a for stage in stages for launch in stage.candidate.launches for a in launch.args)
    return tuple(dict.fromkeys(argument for argument in arguments if isinstance(argument, spec.Check)))


def plan_arena(graph: Graph, stages: Sequence[Stage]) -> Arena[BufferKey]:
    """Place all buffers in one arena, at multiples of LINE; of equal sizes the one needed first is first."""
    lives = lifetimes(graph, stages)
    return assign(dict(sorted(lives.items(), key=lambda item: (item[1].first, item[1].last))), LINE)


def _scratches(launches: Iterable[spec.Launch]) -> list[spec.Scratch]:
    found = {arg.key: arg for launch in launches for arg in launch.args if isinstance(arg, spec.Scratch)}
    return list(found.values())


def smallest(candidates: Sequence[spec.Candidate]) -> list[spec.Candidate]:
    """Return the candidates that need the fewest bytes for constants and scratch, in their order."""
    sizes = [_own_bytes(candidate) for candidate in candidates]
    return [candidate for candidate, size in zip(candidates, sizes, strict=True) if size == min(sizes)]


def _own_bytes(candidate: spec.Candidate) -> int:
    # Without the operands of the epilogue, which all candidates of a node have alike.
    arguments = {arg for launch in candidate.launches for arg in launch.args}
    return sum(arg.bytes for arg in arguments if isinstance(arg, (spec.PackedConstant, spec.Scratch)))


def extent(graph: Graph, root: int) -> int:
    """Bytes of the buffer of `root`, all of which kernels may write; a multiple of 16 elements."""
    value, layout = graph.values[root], graph.layouts[root]
    return round_up(value.pixels * layout.pixel_stride) * graph.element_bytes(root)


@dataclass(frozen=True, slots=True)
class Reference:
    """The cell of the table that names a place in a value's buffer: `lines` behind the buffer's start."""

    row: int
    column: int
    lines: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Offsets of all buffers and constants, in bytes. `launches` stand in the order in which they run, and
    `owners` says to which stage each belongs.
    """

    graph: Graph
    launches: tuple[spec.Launch, ...]
    owners: tuple[int, ...]
    arena: Arena[BufferKey]
    constants: ConstantBuffers
    checks: tuple[spec.Check, ...]

    @property
    def checks_offset(self) -> int:
        """Offset of the first check's line; the others follow it. Without checks there is no such place."""
        return self.arena.offsets[_CHECKS]

    def offset_of(self, value: int) -> int:
        """Offset of a value in the arena, in bytes."""
        layout = self.graph.layouts[value]
        return self.arena.offsets[layout.root] + layout.offset * self.graph.element_bytes(value)

    @property
    def constant_bytes(self) -> int:
        """The size of all constants."""
        return self.constants.bytes

    def rows(self, source: Source) -> list[list[int]]:
        """Return for each launch its function's number, its pointers in lines, and its parameters' values.

        Raises ValueError where a launch takes a value that lies elsewhere than at the start of a line, or a
        parameter of more than 32 bits.
        """
        return [
            [
                source.numbers[function_of(launch)],
                *(
                    constants[argument] // LINE
                    if isinstance(argument, spec.PackedConstant)
                    else self._offset(argument, stage)
                    for argument in (*launch.args, *launch.epilogue.operands)
                ),
                *(word(name, value) for name, value in parameters_of(launch)),
            ]
            for launch, stage, constants in zip(
                self.launches, self.owners, self.constants.by_launch, strict=True
            )
        ]

    def names(self, source: Source) -> tuple[str, ...]:
        """Return the name of each launch's function."""
        return tuple(source.names[function_of(launch)] for launch in self.launches)

    def references(self) -> dict[int, list[Reference]]:
        """Return the references to the buffer of each of the graph's inputs and outputs, for moving it."""
        graph = self.graph
        found: dict[int, list[Reference]] = {value: [] for value in (*graph.inputs, *graph.outputs)}
        for row, launch in enumerate(self.launches):
            # Column 0 is the function's number.
            for column, argument in enumerate((*launch.args, *launch.epilogue.operands), 1):
                value = argument.value if isinstance(argument, spec.LineOf) else argument
                if not isinstance(value, int):
                    continue
                root = graph.layouts[value].root
                if root in found:
                    lines = (self.offset_of(value) - self.offset_of(root)) // LINE
                    found[root].append(Reference(row, column, lines))
        return found

    def _offset(self, argument: int | spec.LineOf | spec.Scratch | spec.Check, stage: int) -> int:
        if isinstance(argument, spec.Scratch):
            return self.arena.offsets[stage, argument.key] // LINE
        if isinstance(argument, spec.Check):
            return self.checks_offset // LINE + self.checks.index(argument)
        if isinstance(argument, spec.LineOf):
            return self.offset_of(argument.value) // LINE
        line, rest = divmod(self.offset_of(argument), LINE)
        if rest:
            raise ValueError(f"value {argument} lies {rest} bytes behind the start of a line")
        return line


def place(graph: Graph, stages: Sequence[Stage], device: Capabilities) -> Placement:
    """Plan the memory of the stages' launches, constants in buffers of the size that suits a device."""
    launches = tuple(launch for stage in stages for launch in stage.candidate.launches)
    owners = tuple(number for number, stage in enumerate(stages) for _ in stage.candidate.launches)
    constants = divide(launches, device.constants_bytes or device.max_allocation_bytes)
    return Placement(graph, launches, owners, plan_arena(graph, stages), constants, checks_of(stages))


def place_on(device: Capabilities, graph: Graph, stages: Sequence[Stage]) -> Placement:
    """Place the stages on a device. Raises DelegateError with what the device lacks to hold them."""
    placement = place(graph, stages, device)
    if (lack := shortage(placement, device)) is not None:
        raise DelegateError(f"gpu delegate: {lack}")
    return placement


def shortage(placement: Placement, device: Capabilities) -> str | None:
    """Describe what a device lacks to hold a placement, with sizes; None if it fits."""
    activations, constants = placement.arena.size, placement.constant_bytes
    largest = max(placement.constants.sizes)
    for what, size in (("activations", activations), ("constants of one layer", largest)):
        if size > device.max_allocation_bytes:
            limit = _mebibytes(device.max_allocation_bytes)
            return f"the {what} need {_mebibytes(size)} in one buffer, of which {device.name} gives {limit}"
    if activations + constants <= device.memory_bytes:
        return None
    return (
        f"the partition needs {_mebibytes(activations + constants)}, of that {_mebibytes(constants)} for "
        f"constants, and {device.name} has {_mebibytes(device.memory_bytes)}"
    )


def demand(placement: Placement, device: Capabilities) -> str:
    """Describe the memory that a placement needs, for a message about memory that a driver refuses."""
    whole = _mebibytes(placement.arena.size + placement.constant_bytes)
    return (
        f"the partition needs {whole}, of that {_mebibytes(placement.constant_bytes)} for constants, and "
        f"{device.name} has {_mebibytes(device.memory_bytes)} for all programs together"
    )


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
