"""The memory plan of a model's tensors: when each lives, where it lies, and the peak."""

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.common.arena import Lifetime, aligned
from runtime.errors import UnsupportedOperatorError
from runtime.model.graph import Operator, Subgraph
from runtime.ops.support.registry import find_spec
from runtime.plan.lifetimes import ALIGNMENT, lifetimes, plan_arena


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    """A tensor in the arena: `size` bytes at `offset`, from operator `first` to operator `last`.

    Inputs and outputs of the model live from -1 to the number of operators.
    """

    index: int
    name: str
    size: int
    offset: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The arena of the primary subgraph, by the shapes that the file declares.

    `peak_bytes` live at once while operator `peak_operator` runs: no plan can do with less.
    `unshared_bytes` is what the tensors would take without sharing.
    """

    arena_bytes: int
    peak_bytes: int
    peak_operator: int
    unshared_bytes: int
    tensors: tuple[PlacedTensor, ...]


def memory_plan(subgraph: Subgraph) -> MemoryPlan:
    """Plan as the interpreter does before shapes change; values computed from constants need no arena."""
    known = {t.index for t in subgraph.tensors if t.is_constant}
    running: list[Operator] = []
    for operator in subgraph.operators:
        if _is_folded(operator, known):
            known.update(operator.outputs)
        else:
            running.append(operator)
    touched = [([i for i in o.inputs if i >= 0], o.outputs) for o in running]
    lives = lifetimes(subgraph, touched, {t.index: t.shape for t in subgraph.tensors}, known)
    arena = plan_arena(subgraph, lives)
    at = {step: operator.index for step, operator in enumerate(running)}
    placed = tuple(
        PlacedTensor(
            index=i,
            name=subgraph.tensors[i].name,
            size=lives[i].size,
            offset=offset,
            first=at.get(lives[i].first, -1),
            last=at.get(lives[i].last, len(subgraph.operators)),
        )
        for i, offset in sorted(arena.offsets.items())
    )
    peak, step = _peak({i: lives[i] for i in arena.offsets}, len(running))
    return MemoryPlan(arena.size, peak, at.get(step, -1), sum(t.size for t in placed), placed)


def _is_folded(operator: Operator, known: set[int]) -> bool:
    try:
        spec = find_spec(operator)
    except UnsupportedOperatorError:
        return False
    if spec.stateful or not operator.outputs:
        return False
    # A SHAPE needs the shape of its input alone, which is known before any run.
    return spec.shape_only or all(i < 0 or i in known for i in operator.inputs)


def _peak(lives: Mapping[int, Lifetime], steps: int) -> tuple[int, int]:
    """Return (bytes, step) of the largest set that lives at once, each tensor aligned as in the arena."""
    # Lives go from -1 to "steps" with both ends included; index 0 stands for -1, and an end frees one later.
    changes = [0] * (steps + 3)
    for life in lives.values():
        size = aligned(life.size, ALIGNMENT)
        changes[life.first + 1] += size
        changes[life.last + 2] -= size
    best, place, current = 0, -1, 0
    for position, change in enumerate(changes):
        current += change
        if current > best:
            best, place = current, position - 1
    return best, place
