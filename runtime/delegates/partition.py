"""Divides a graph into partitions: which operators each delegate runs, in what order, and why no others.

The order is LiteRT's (`graph_info.cc`): an epoch takes the kind of its first ready operator and absorbs every
ready operator of that kind. Of a delegate's partitions the largest are kept (`max_delegated_partitions`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Literal

from runtime.delegates.base import GraphFacts, Partition, PartitionDelegate, SmallestPartition
from runtime.model.graph import Model, Operator, Subgraph
from runtime.model.schema import BuiltinOperator

Status = Literal["full", "partial", "none"]


@dataclass(frozen=True, slots=True)
class Fallback:
    """An operator that stays on the CPU, and why."""

    index: int
    op: str
    reason: str


@dataclass(frozen=True, slots=True)
class DelegationReport:
    """How much of a model the delegates run. A constant operator folded for them counts as delegated."""

    status: Status
    delegated_ops: int
    total_ops: int
    partitions: int
    fallbacks: tuple[Fallback, ...]

    def __str__(self) -> str:
        if not self.fallbacks:
            return f"All {self.total_ops} operations will run on the delegate."
        lines = ["Following operations are not supported by the delegate:"]
        lines += sorted({f"{f.op}: {f.reason}" for f in self.fallbacks})
        left = len(self.fallbacks)
        if self.delegated_ops:
            summary = (
                f"{self.delegated_ops} operations will run on the delegate, "
                f"and the remaining {left} operations will run on the CPU."
            )
        else:
            summary = (
                f"No operations will run on the delegate, and all {left} operations will run on the CPU."
            )
        return "\n".join([*lines, "", summary])


@dataclass(frozen=True, slots=True)
class Assignment:
    """Consecutive operators of one kind: a partition of a delegate, or operators of the CPU."""

    operators: tuple[Operator, ...]
    delegate: PartitionDelegate | None
    partition: Partition | None


@dataclass(frozen=True, slots=True)
class Delegation:
    """Everything in the order it runs, and the report. Folded operators are in no assignment."""

    assignments: tuple[Assignment, ...]
    report: DelegationReport


@dataclass(frozen=True, slots=True)
class Grouping:
    """LiteRT's switches: `cluster` off keeps the file's order, `fuse` off makes each operator a group."""

    cluster: bool = True
    fuse: bool = True


def delegate_graph(
    model: Model,
    facts: GraphFacts,
    folded: frozenset[int],
    delegates: Sequence[PartitionDelegate],
    grouping: Grouping = Grouping(),
    failed: Mapping[int, Mapping[int, str]] = MappingProxyType({}),
) -> Delegation:
    """Offer the graph to each delegate in turn; each chooses from those that the earlier ones left.

    `failed` holds, by the delegate's position, the operators that it is not offered again, with the reasons.
    """
    subgraph = facts.subgraph
    owner: dict[int, int] = {}
    reasons: dict[int, list[str]] = {o.index: [] for o in subgraph.operators if o.index not in folded}
    for number, delegate in enumerate(delegates):
        candidates = [i for i in reasons if i not in owner]
        wanted = _supported(facts, delegate, candidates, reasons, failed.get(number, {}))
        # Grouped before it is limited: how large a partition is shows only once its operators are together.
        trial = {**owner, **dict.fromkeys(wanted, number)}
        groups = epochs(subgraph, trial, folded, grouping, facts.ordered)
        parts = [p for p in groups if trial.get(p[0].index) == number]
        limit = max(1, delegate.max_delegated_partitions)
        # Stable: of equally large partitions the earlier ones are kept, so one file gives one report.
        parts.sort(key=len, reverse=True)
        fewest = delegate.min_nodes_per_partition if isinstance(delegate, SmallestPartition) else 1
        kept = [part for part in parts[:limit] if len(part) >= fewest]
        owner.update({o.index: number for part in kept for o in part})
        for part in parts[len(kept) :]:
            why = f"smaller partition than the {limit} that {delegate.name} may take"
            if len(part) < fewest:
                why = f"partition of {len(part)}; {delegate.name} takes none of fewer than {fewest} operators"
            for operator in part:
                reasons[operator.index].append(f"supported, but in a {why}")
    # Grouped again: what fell back to the CPU changes which operators are ready together.
    assignments = tuple(
        _assignment(model, facts, part, delegates, owner.get(part[0].index))
        for part in epochs(subgraph, owner, folded, grouping, facts.ordered)
    )
    return Delegation(assignments, _report(subgraph, assignments, owner, folded, reasons))


def _supported(
    facts: GraphFacts,
    delegate: PartitionDelegate,
    candidates: Sequence[int],
    reasons: Mapping[int, list[str]],
    failed: Mapping[int, str],
) -> list[int]:
    taken = []
    for index in candidates:
        if index in failed:
            reasons[index].append(failed[index])
            continue
        if index in facts.late:
            reasons[index].append("its shapes are known at run time only")
            continue
        refusal = delegate.supports(facts, facts.subgraph.operators[index])
        if refusal is None:
            taken.append(index)
        else:
            reasons[index].append(refusal.reason)
    return taken


def epochs(
    subgraph: Subgraph,
    kinds: Mapping[int, int],
    folded: frozenset[int],
    grouping: Grouping = Grouping(),
    ordered: frozenset[int] = frozenset(),
) -> list[tuple[Operator, ...]]:
    """Operators grouped so that each group has one kind (absent: the CPU) and needs only earlier groups.

    Those in `ordered` also wait for all before them in `ordered`.
    """
    earlier = {after: before for before, after in pairwise(sorted(ordered))}
    made_by = {t: o.index for o in subgraph.operators for t in o.outputs}
    waiting = [o for o in subgraph.operators if o.index not in folded]
    done = set(folded)
    groups: list[tuple[Operator, ...]] = []
    while waiting:
        group: list[Operator] = []
        later: list[Operator] = []
        for operator in waiting:
            ready = all(t not in made_by or made_by[t] in done for t in operator.inputs)
            ready = ready and (operator.index not in earlier or earlier[operator.index] in done)
            same = not group or kinds.get(operator.index) == kinds.get(group[0].index)
            allowed = (grouping.fuse or not group) and (grouping.cluster or not later)
            if ready and same and allowed:
                group.append(operator)
                done.add(operator.index)
            else:
                later.append(operator)
        groups.append(tuple(group))
        waiting = later
    return groups


def _assignment(
    model: Model,
    facts: GraphFacts,
    operators: tuple[Operator, ...],
    delegates: Sequence[PartitionDelegate],
    owner: int | None,
) -> Assignment:
    if owner is None:
        return Assignment(operators, None, None)
    return Assignment(operators, delegates[owner], make_partition(model, facts, operators))


def make_partition(model: Model, facts: GraphFacts, operators: tuple[Operator, ...]) -> Partition:
    """The tensors that cross the border of `operators`, sorted by tensor index as LiteRT does."""
    subgraph = facts.subgraph
    inside = {o.index for o in operators}
    read = {t for o in operators for t in o.inputs if t >= 0}
    made = {t for o in operators for t in o.outputs}
    elsewhere = {t for o in subgraph.operators if o.index not in inside for t in o.inputs}
    elsewhere.update(subgraph.outputs)
    touched = read | made
    widened = {
        o.inputs[0]
        for o in subgraph.operators
        if o.opcode is BuiltinOperator.DEQUANTIZE and o.outputs[0] in touched
    }
    return Partition(
        model=model,
        subgraph=subgraph,
        operators=operators,
        inputs=tuple(sorted(read - made - set(facts.constants))),
        outputs=tuple(sorted(made & elsewhere)),
        shapes={t: facts.shapes[t] for t in touched},
        dtypes={t: facts.dtypes[t] for t in touched},
        constants={t: facts.constants[t] for t in touched | widened if t in facts.constants},
    )


def _report(
    subgraph: Subgraph,
    assignments: Sequence[Assignment],
    owner: Mapping[int, int],
    folded: frozenset[int],
    reasons: Mapping[int, list[str]],
) -> DelegationReport:
    served = _served(subgraph, owner, folded)
    fallbacks = []
    for operator in subgraph.operators:
        index = operator.index
        if index in owner or index in served:
            continue
        reason = "; ".join(dict.fromkeys(reasons.get(index, ())))
        if index in folded:
            reason = "constant, but no operator that uses it is delegated"
        fallbacks.append(Fallback(index, operator.name, reason or "no delegate was asked"))
    total = len(subgraph.operators)
    delegated = total - len(fallbacks)
    partitions = Counter(a.delegate is not None for a in assignments)[True]
    status: Status = "full" if not fallbacks else "partial" if partitions else "none"
    return DelegationReport(status, delegated, total, partitions, tuple(fallbacks))


def _served(subgraph: Subgraph, owner: Mapping[int, int], folded: frozenset[int]) -> set[int]:
    """Folded operators that a delegate uses, directly or through other folded operators."""
    users: dict[int, set[int]] = {}
    for operator in subgraph.operators:
        for t in operator.inputs:
            users.setdefault(t, set()).add(operator.index)
    served: set[int] = set()
    # From the last to the first: whether a constant is used is known before what it was made from.
    for operator in reversed(subgraph.operators):
        if operator.index in folded:
            readers = {u for t in operator.outputs for u in users.get(t, ())}
            if any(u in owner or u in served for u in readers) or (owner and not readers):
                served.add(operator.index)
    return served
