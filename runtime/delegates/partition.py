"""Divides a graph into partitions: which operators each delegate runs, in what order, and why no others."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from runtime.delegates.base import GraphFacts, Partition, PartitionDelegate, Titled
from runtime.delegates.epochs import Grouping, epochs
from runtime.delegates.selection import Border, select
from runtime.delegates.variables import split
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
class FailedPartition:
    """A partition that a delegate took and could not compile, so that the CPU runs it.

    `operators` are their indices, `reason` is the error's first line, `log` its whole text: of a kernel that
    does not compile, everything that the compiler said. `is_device_lost`: the device failed for good.
    """

    delegate: str
    operators: tuple[int, ...]
    reason: str
    log: str
    is_device_lost: bool = False


@dataclass(frozen=True, slots=True)
class DelegationReport:
    """The part of a model that the delegates run. A constant operator folded for them counts as delegated.

    `title` is the delegate's name in the text, LiteRT's warning; empty where there are several.
    """

    status: Status
    delegated_ops: int
    total_ops: int
    partitions: int
    fallbacks: tuple[Fallback, ...]
    title: str = ""
    failures: tuple[FailedPartition, ...] = ()

    def __str__(self) -> str:
        on = f"on the {self.title or 'delegate'}"
        if not self.fallbacks:
            return f"All {self.total_ops} operations will run {on}."
        by = f"{self.title} delegate" if self.title else "the delegate"
        lines = [f"Following operations are not supported by {by}:"]
        lines += sorted({f"{f.op}: {f.reason}" for f in self.fallbacks})
        left = len(self.fallbacks)
        summary = f"No operations will run {on}, and all {left} operations will run on the CPU."
        if self.delegated_ops:
            summary = (
                f"{self.delegated_ops} operations will run {on}, "
                f"and the remaining {left} operations will run on the CPU."
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

    def replacements(self, subgraph: Subgraph) -> list[str]:
        """LiteRT's line for each delegate. It counts the operators of the plan, so no folded ones, and as
        partitions also what the CPU runs between those of the delegates."""
        nodes = sum(len(a.operators) for a in self.assignments)
        taken: Counter[str] = Counter()
        for assignment in self.assignments:
            if assignment.delegate is not None:
                taken[assignment.delegate.name] += len(assignment.operators)
        return [
            f"Replacing {count} out of {nodes} node(s) with delegate ({name}) node, yielding "
            f"{len(self.assignments)} partitions for subgraph {subgraph.index} ({subgraph.name})."
            for name, count in taken.items()
        ]


def delegate_graph(
    model: Model,
    facts: GraphFacts,
    folded: frozenset[int],
    delegates: Sequence[PartitionDelegate],
    grouping: Grouping,
    failed: Mapping[int, Mapping[int, str]],
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
        selection = select(facts, delegate, number, owner, wanted, folded, grouping)
        for part in selection.partitions:
            # A partition of nothing but the host's operators would leave the delegate nothing to run.
            if split(part)[1]:
                owner.update({o.index: number for o in part})
            else:
                for operator in part:
                    reasons[operator.index].append(f"no other operator around it runs on {delegate.name}")
        for index, reason in selection.reasons.items():
            reasons[index].append(reason)
    # Grouped again: what fell back to the CPU changes which operators are ready together.
    assignments = tuple(
        Assignment(part, None, None)
        if (own := owner.get(part[0].index)) is None
        else Assignment(part, delegates[own], make_partition(model, facts, part))
        for part in epochs(subgraph, owner, folded, grouping, facts.ordered)
    )
    title = delegates[0].title if len(delegates) == 1 and isinstance(delegates[0], Titled) else ""
    return Delegation(assignments, _report(subgraph, assignments, owner, folded, reasons, title))


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


def make_partition(model: Model, facts: GraphFacts, operators: tuple[Operator, ...]) -> Partition:
    """Build the partition of these operators, less those of its border, with what a delegate needs."""
    _, operators, _ = split(operators)
    touched = {t for o in operators for t in (*o.inputs, *o.outputs) if t >= 0}
    widened = {
        o.inputs[0]
        for o in facts.subgraph.operators
        if o.opcode is BuiltinOperator.DEQUANTIZE and o.outputs[0] in touched
    }
    quantised = (facts.subgraph.tensors[t].quantization for t in touched)
    # Scales of blocks lie in tensors of their own, which no operator names as an input.
    scales = {q.blocks.scales for q in quantised if q is not None and q.blocks is not None}
    inputs, outputs = Border(facts).tensors(operators)
    return Partition(
        model=model,
        subgraph=facts.subgraph,
        operators=operators,
        inputs=inputs,
        outputs=outputs,
        shapes={t: facts.shapes[t] for t in touched},
        dtypes={t: facts.dtypes[t] for t in touched},
        constants={t: facts.constants[t] for t in touched | widened | scales if t in facts.constants},
    )


def _report(
    subgraph: Subgraph,
    assignments: Sequence[Assignment],
    owner: Mapping[int, int],
    folded: frozenset[int],
    reasons: Mapping[int, list[str]],
    title: str,
) -> DelegationReport:
    served = _served(subgraph, owner, folded)
    fallbacks = []
    for operator in subgraph.operators:
        index = operator.index
        if index in owner or index in served:
            continue
        # Several delegates may refuse an operator in the same words.
        reason = "; ".join(dict.fromkeys(reasons.get(index, ())))
        if index in folded:
            reason = "constant, but no operator that uses it is delegated"
        fallbacks.append(Fallback(index, operator.name, reason or "no delegate was asked"))
    total = len(subgraph.operators)
    delegated = total - len(fallbacks)
    partitions = Counter(a.delegate is not None for a in assignments)[True]
    status: Status = "full" if not fallbacks else "partial" if partitions else "none"
    return DelegationReport(status, delegated, total, partitions, tuple(fallbacks), title)


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
