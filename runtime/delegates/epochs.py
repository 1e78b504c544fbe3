"""Groups operators by the delegate that runs them, in an order in which each group needs only earlier ones.

The order is LiteRT's (`graph_info.cc`): an epoch absorbs every ready operator of its first one's kind.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import groupby, pairwise

from runtime.model.graph import Operator, Subgraph


@dataclass(frozen=True, slots=True)
class Grouping:
    """LiteRT's switches: `cluster` off keeps the file's order, `fuse` off makes each operator a group."""

    cluster: bool = True
    fuse: bool = True


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
    operators = [o for o in subgraph.operators if o.index not in folded]
    # A file's operators stand in an order in which they can run; the reader refuses others.
    if not grouping.fuse:
        return [(operator,) for operator in operators]
    if not grouping.cluster:
        return [tuple(group) for _, group in groupby(operators, lambda o: kinds.get(o.index))]
    return _absorbing(operators, kinds, ordered)


def _absorbing(
    operators: list[Operator], kinds: Mapping[int, int], ordered: frozenset[int]
) -> list[tuple[Operator, ...]]:
    at = {o.index: o for o in operators}
    missing, users = _dependencies(operators, ordered)
    # One heap of ready operators for each kind: the lowest index is what a walk in the file's order meets.
    ready: dict[int | None, list[int]] = defaultdict(list)
    for operator in operators:
        if not missing[operator.index]:
            heappush(ready[kinds.get(operator.index)], operator.index)
    groups = []
    while any(ready.values()):
        heap = min((heap for heap in ready.values() if heap), key=lambda heap: heap[0])
        group = []
        while heap:
            group.append(at[heappop(heap)])
            for user in users[group[-1].index]:
                missing[user] -= 1
                if not missing[user]:
                    heappush(ready[kinds.get(user)], user)
        groups.append(tuple(group))
    return groups


def _dependencies(
    operators: list[Operator], ordered: frozenset[int]
) -> tuple[dict[int, int], dict[int, list[int]]]:
    """For each operator how many others it waits for, and which ones wait for it."""
    made_by = {t: o.index for o in operators for t in o.outputs}
    waits = {o.index: {made_by[t] for t in o.inputs if t in made_by} for o in operators}
    # A chain is enough: waiting for the one before implies waiting for all earlier ones.
    for before, after in pairwise(sorted(ordered & waits.keys())):
        waits[after].add(before)
    users: dict[int, list[int]] = defaultdict(list)
    for index, needed in waits.items():
        for before in needed:
            users[before].append(index)
    return {index: len(needed) for index, needed in waits.items()}, users
