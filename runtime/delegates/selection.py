"""Chooses, among the operators that a delegate supports, those that it will run.

LiteRT keeps the largest partitions (`max_delegated_partitions`). Before that, a delegate that says what an
operator costs (`base.CostAware`) loses the groups of operators that cost more than they save: those too small
to pay for a run and its transfers, which also cut larger partitions up where the CPU runs what lies between.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from runtime.delegates.base import CostAware, CostModel, GraphFacts, PartitionDelegate, SmallestPartition
from runtime.delegates.epochs import Grouping, epochs
from runtime.delegates.variables import split
from runtime.model.graph import Operator

Group: TypeAlias = tuple[Operator, ...]

MOST_TRIALS: Final = 64
"""Groups that are looked at in each round. Larger decides models better that fall
into very many pieces, and plans them longer: a trial groups the whole graph again, about 5 ms for 1000
operators."""

MOST_ROUNDS: Final = 4
"""Rounds after which the choice stands. What one leaves out joins partitions, in which the next one may find
groups that were elsewhere before; the models known need two."""


LEAST_NS: Final = 10_000.0
"""Nanoseconds by which a group must cost more than it saves to be left out: half of what a partition's run
costs on PoCL. Estimates differ by factors; larger keeps more groups that lose a little, smaller leaves out
operators that would have run in a partition that exists anyway."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The partitions of one delegate, and the reasons for supported operators that are in none."""

    partitions: tuple[Group, ...]
    reasons: Mapping[int, str]


class Border:
    """The tensors that cross the border of a set of operators."""

    def __init__(self, facts: GraphFacts) -> None:
        self._constants = facts.constants.keys()
        self._readers: dict[int, set[int]] = defaultdict(set)
        for operator in facts.subgraph.operators:
            for tensor in operator.inputs:
                self._readers[tensor].add(operator.index)
        # An output of the graph has a reader outside every set of operators.
        for tensor in facts.subgraph.outputs:
            self._readers[tensor].add(-1)

    def tensors(self, operators: Sequence[Operator]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return inputs without constants, and outputs; each sorted by tensor index, as LiteRT does.

        Of what the host runs at the border, outputs are inputs here, and inputs outputs.
        """
        _, operators, _ = split(operators)
        inside = {o.index for o in operators}
        read = {t for o in operators for t in o.inputs if t >= 0}
        made = {t for o in operators for t in o.outputs}
        outputs = (t for t in made if self._readers[t] - inside)
        return tuple(sorted(read - made - self._constants)), tuple(sorted(outputs))


@dataclass(frozen=True, slots=True)
class _Plan:
    """The partitions that some operators form, the largest first, how many are kept, and what that saves."""

    wanted: frozenset[int]
    parts: tuple[Group, ...]
    kept: int
    saved_ns: float


@dataclass(slots=True)
class _Planner:
    """Divides the operators that one delegate would take, and knows what each division saves."""

    facts: GraphFacts
    delegate: PartitionDelegate
    owner: Mapping[int, int]
    number: int
    folded: frozenset[int]
    grouping: Grouping
    border: Border
    costs: CostModel | None
    _savings: dict[int, float] = field(default_factory=dict)

    @property
    def limit(self) -> int:
        return max(1, self.delegate.max_delegated_partitions)

    @property
    def fewest(self) -> int:
        return self.delegate.min_nodes_per_partition if isinstance(self.delegate, SmallestPartition) else 1

    def plan(self, wanted: frozenset[int]) -> _Plan:
        # Grouped before it is limited: how large a partition is shows only once its operators are together.
        kinds = {**self.owner, **dict.fromkeys(wanted, self.number)}
        groups = epochs(self.facts.subgraph, kinds, self.folded, self.grouping, self.facts.ordered)
        parts = [part for part in groups if kinds.get(part[0].index) == self.number]
        # Stable: of equally large partitions the earlier ones are kept, so one file gives one report.
        parts.sort(key=len, reverse=True)
        kept = [part for part in parts[: self.limit] if len(part) >= self.fewest]
        saved = sum(self.saved_ns(part) - self.entry_ns(part) for part in kept)
        return _Plan(wanted, tuple(parts), len(kept), saved)

    def saved_ns(self, group: Group) -> float:
        if self.costs is None:
            return 0.0
        for operator in group:
            if operator.index not in self._savings:
                self._savings[operator.index] = self.costs.saved_ns(self.facts, operator)
        return sum(self._savings[operator.index] for operator in group)

    def entry_ns(self, group: Group) -> float:
        if self.costs is None:
            return 0.0
        return self.costs.entry_ns(self.facts, *self.border.tensors(group))


def select(
    facts: GraphFacts,
    delegate: PartitionDelegate,
    number: int,
    owner: Mapping[int, int],
    wanted: Iterable[int],
    folded: frozenset[int],
    grouping: Grouping,
) -> Selection:
    """Select the partitions of the delegate at position `number`, which supports the operators `wanted`.

    `owner` holds the operators that earlier delegates took. A graph that is taken whole stays whole.
    """
    costs = delegate.cost_model if isinstance(delegate, CostAware) else None
    planner = _Planner(facts, delegate, owner, number, folded, grouping, Border(facts), costs)
    plan = planner.plan(frozenset(wanted))
    reasons: dict[int, str] = {}
    left = sum(1 for o in facts.subgraph.operators if o.index not in folded and o.index not in plan.wanted)
    if costs is not None and (left or plan.kept != 1 or len(plan.parts) != 1):
        plan = _without_losses(planner, plan, reasons)
    for part in plan.parts[plan.kept :]:
        why = f"smaller partition than the {planner.limit} that {delegate.name} may take"
        if len(part) < planner.fewest:
            taken = f"takes none of fewer than {planner.fewest} operators"
            why = f"partition of {len(part)}; {delegate.name} {taken}"
        reasons |= {operator.index: f"supported, but in a {why}" for operator in part}
    return Selection(plan.parts[: plan.kept], reasons)


def _without_losses(planner: _Planner, plan: _Plan, reasons: dict[int, str]) -> _Plan:
    """Drop the groups that cost more than they save, as estimated; return a better plan or the same."""
    for _ in range(MOST_ROUNDS):
        groups = [group for part in plan.parts for group in _connected(part)]
        losing = [group for group in groups if planner.saved_ns(group) < planner.entry_ns(group)]
        better, losses = _best(planner, plan, losing[:MOST_TRIALS])
        if better is plan:
            break
        for group in losing:
            if group[0].index in losses:
                why = _why(planner.delegate, group, losses[group[0].index])
                reasons |= dict.fromkeys((o.index for o in group), why)
        plan = better
    return plan


def _best(planner: _Planner, plan: _Plan, losing: Sequence[Group]) -> tuple[_Plan, dict[int, float]]:
    """Return a plan without some of the groups, and the cost of each of these in it, in nanoseconds.

    All are left out or none, whichever saves more; then each changes sides where that saves more. A group is
    named by its first operator.
    """
    best, out = plan, dict[int, float]()
    without = planner.plan(plan.wanted - {o.index for group in losing for o in group})
    gained = without.saved_ns - plan.saved_ns
    if gained > LEAST_NS:
        best, out = without, {group[0].index: gained for group in losing}
    for group in losing:
        name, indices = group[0].index, frozenset(o.index for o in group)
        if name in out:
            trial = planner.plan(best.wanted | indices)
            loss = best.saved_ns - trial.saved_ns
        else:
            trial = planner.plan(best.wanted - indices)
            loss = trial.saved_ns - best.saved_ns
        if (loss > LEAST_NS) != (name in out):
            best = trial
        if loss > LEAST_NS:
            out[name] = loss
        else:
            out.pop(name, None)
    return best, out


def _why(delegate: PartitionDelegate, group: Group, loss: float) -> str:
    what = "it" if len(group) == 1 else f"its group of {len(group)} operators"
    return (
        f"supported, but the model would take an estimated {loss / 1000:.0f} µs longer with {what} on "
        f"{delegate.name} (cost_aware_partitioning)"
    )


def _connected(part: Group) -> list[Group]:
    """Return the operators of a partition that hand each other values, by group, in the partition's order."""
    made_by = {t: o.index for o in part for t in o.outputs}
    leader = {o.index: o.index for o in part}

    def root(index: int) -> int:
        while leader[index] != index:
            # Path halving keeps the chains short.
            leader[index] = leader[leader[index]]
            index = leader[index]
        return index

    for operator in part:
        for tensor in operator.inputs:
            if tensor in made_by:
                leader[root(operator.index)] = root(made_by[tensor])
    groups: dict[int, list[Operator]] = defaultdict(list)
    for operator in part:
        groups[root(operator.index)].append(operator)
    return [tuple(group) for group in groups.values()]
