"""Compares the results of two runs cell by cell: the speed of the second, with its certainty.

A ratio is the first's time over the second's, and its verdict is the one of every other ratio
(`runtime.common.verdict`). Over many cells the probabilities are adjusted by Benjamini and Hochberg (1995),
so that of all differences that are called one at most a twentieth are false.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypeVar

from orchestrator.results.change_estimates import Estimate, estimates, mean_estimate, source_of
from orchestrator.results.records import ComparedCell, void_reason
from orchestrator.results.speedups import blocks_to_decide, counted_times, decide, least_difference
from runtime.common import verdict as decided

Verdict: TypeAlias = Literal[
    "slower", "faster", "same", "open", "void", "broken", "repaired", "added", "removed", "missing"
]
"""`void`: one of the two results is, or was imported. `broken`: both runs have the cell, only the first a
figure. `repaired`: only the second. `added`, `removed`: only the second run, or only the first, has the cell.
`missing`: neither has a figure, or what there is was imported."""

Names: TypeAlias = tuple[str, str]
"""What the two runs are called where one of them is meant."""

FALSE_DISCOVERY_RATE: Final = 0.05
"""Largest expected share of false ones among the differences that are called. Chosen as that of a single
interval; a smaller one finds less."""


@dataclass(frozen=True, slots=True)
class Change:
    """One cell in both runs. `key` names it; `why` says why there is no estimate, or no decided verdict."""

    key: tuple[str, ...]
    verdict: Verdict
    first: ComparedCell | None
    second: ComparedCell | None
    estimate: Estimate | None = None
    why: str = ""

    @property
    def is_imported(self) -> bool:
        """Whether another tool measured one of the two."""
        return any(cell is not None and cell.imported is not None for cell in (self.first, self.second))

    @property
    def is_one_result(self) -> bool:
        """Whether both cells show the same result, which one of them reused."""
        return _is_one(self.first, self.second)

    @property
    def may_be_slower(self) -> bool:
        """Whether nothing is decided, and a slow-down that counts is not excluded either."""
        if self.verdict not in ("open", "void") or self.is_imported:
            return False
        found = self.estimate
        if self.verdict == "void" or found is None or found.ci95 is None or found.ci95[0] <= 0.0:
            return True
        # The slow end, less what others may have taken, against the largest slow-down that is still the same.
        return math.log(found.ci95[0]) - found.allowance < -math.log1p(decided.SAME)


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact of the environment that differs, in how many of the compared cells."""

    name: str
    before: str
    after: str
    cells: int


@dataclass(frozen=True, slots=True)
class Report:
    """All changes, the geometric mean of the ratios with its interval, and what differs beside the code.

    The mean is over `mean_count` ratios that are not void: the paired ones, where there are any.
    """

    changes: tuple[Change, ...]
    mean: Estimate | None
    differences: tuple[Difference, ...]
    mean_count: int = 0
    mean_paired: bool = False
    names: Names = ("before", "after")

    @property
    def counts(self) -> Mapping[Verdict, int]:
        """The number of cells with each verdict."""
        return Counter(change.verdict for change in self.changes)

    @property
    def has_regression(self) -> bool:
        """Whether a cell is slower, or has no right result any more."""
        return any(change.verdict in ("slower", "broken") for change in self.changes)

    @property
    def undecided(self) -> tuple[Change, ...]:
        """The cells of which it is not known whether they are slower."""
        return tuple(change for change in self.changes if change.may_be_slower)


Keyed: TypeAlias = Mapping[tuple[str, ...], ComparedCell]
_Cell = TypeVar("_Cell", bound=ComparedCell)


def by_names(cells: Iterable[_Cell]) -> dict[tuple[str, ...], _Cell]:
    """Index the cells by their names in every campaign: model, delegate, device and level."""
    return {(cell.model, cell.delegate, cell.device, cell.level): cell for cell in cells}


def compare_runs(
    first: Keyed,
    second: Keyed,
    threshold: float | None = None,
    *,
    names: Names = ("before", "after"),
    within_run: bool = False,
) -> Report:
    """Compare the cells of equal keys; `threshold`: the least difference that is called one, 0.03 for 3 %.

    `names`: what the sides are called. `within_run`: both sides are of one run, where only cells that were
    measured by blocks can be compared.
    """
    least = decided.DIFFERENT if threshold is None else threshold
    keys = list(dict.fromkeys((*first, *second)))
    compared = estimates(first, second, keys)
    voids = {key: _voids(first.get(key), second.get(key), names) for key in keys}
    # What is void, or one result in both runs, is not judged by its probability, and must not make it harder
    # for the others to get a verdict.
    p_values = {
        key: found.p
        for key, found in compared.items()
        if found is not None and not voids[key] and not _is_one(first.get(key), second.get(key))
    }
    adjusted = _adjusted({key: p for key, p in p_values.items() if p is not None})
    changes = []
    for key in keys:
        before, after, found = first.get(key), second.get(key), compared[key]
        if found is None:
            verdict, why = _without_estimate(before, after, names)
        elif voids[key]:
            verdict, why = "void", voids[key]
        else:
            different = least_difference(least, before, after)
            verdict, why = verdict_over(found, adjusted.get(key), different, within_run=within_run)
        kept = _kept(before, after, names)
        if kept:
            # What a run shows of an earlier one is no answer to whether this one is as fast.
            same = found is not None and verdict != "void" and _is_one(before, after)
            verdict, why = "open" if same else verdict, "; ".join(filter(None, ("" if same else why, kept)))
        elif found is not None and _is_one(before, after):
            why = "one result, reused; farm submit --force measures again"
            verdict = "void" if verdict == "void" else "same"
        changes.append(Change(key, verdict, before, after, found, why))
    made = [change.estimate for change in changes if change.estimate and change.verdict != "void"]
    averaged = [one for one in made if one.blocks] or made
    return Report(
        tuple(changes),
        mean_estimate(averaged),
        _differences(changes),
        len(averaged),
        mean_paired=any(one.blocks for one in averaged),
        names=names,
    )


def _kept(first: ComparedCell | None, second: ComparedCell | None, names: Names) -> str:
    """`nightly: measuring again`: why a side shows an earlier result; empty where both show their newest."""
    sides = zip(names, (first, second), strict=True)
    return "; ".join(f"{side}: {cell.kept}" for side, cell in sides if cell is not None and cell.kept)


def verdict_over(
    found: Estimate, p: float | None, different: float, *, within_run: bool = False
) -> tuple[Verdict, str]:
    """Return the verdict over an estimate, and why it is open; `p`: adjusted for all judged cells."""
    if within_run and not found.blocks:
        return "open", "unpaired: not measured by blocks"
    verdict: Verdict = decide(found.ratio, found.ci95, found.allowance, different)
    if verdict in ("faster", "slower") and (p is None or p > FALSE_DISCOVERY_RATE):
        return "open", "among so many cells one differs by chance as much"
    if verdict != "open" or found.stored is None:
        return verdict, found.why_open if verdict == "open" else ""
    needed = blocks_to_decide(found.stored, different)
    return verdict, "more blocks do not decide it" if needed is None else f"{needed} blocks would decide it"


def _voids(first: ComparedCell | None, second: ComparedCell | None, names: Names) -> str:
    """`nightly: void: swapped while timing`; empty where both results may be judged."""
    sides = zip(names, (first, second), strict=True)
    reasons = ((side, None if cell is None else void_reason(cell)) for side, cell in sides)
    return "; ".join(f"{side}: {_said(reason)}" for side, reason in reasons if reason is not None)


def _said(reason: str) -> str:
    return reason if reason.startswith("imported: ") else f"void: {reason}"


def _is_one(first: ComparedCell | None, second: ComparedCell | None) -> bool:
    return first is not None and second is not None and source_of(first) == source_of(second)


def _without_estimate(
    first: ComparedCell | None, second: ComparedCell | None, names: Names
) -> tuple[Verdict, str]:
    # templates/compare.js, which sets any two campaigns against each other, has the same words.
    had = first is not None and counted_times(first) is not None
    has = second is not None and counted_times(second) is not None
    sides = zip(names, (first, second), (had, has), strict=True)
    whys = [f"{name}: {_state(cell)}" for name, cell, ok in sides if cell is not None and not ok]
    # Both results count, yet there is no estimate: a median is missing.
    if had and has:
        return "missing", "no p50: too few samples"
    if any(cell is not None and cell.imported is not None for cell in (first, second)):
        return "missing", "; ".join((_voids(first, second, names), *whys))
    if first is None or second is None:
        return ("added" if first is None else "removed"), "; ".join(whys)
    return ("broken" if had else "repaired" if has else "missing"), "; ".join(whys)


def _state(cell: ComparedCell) -> str:
    if cell.reason is None:
        return cell.struck_as if cell.struck_out else cell.status
    return f"{cell.reason.code}: {cell.reason.text}"


def _adjusted(probabilities: Mapping[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    """Benjamini and Hochberg's adjusted probabilities."""
    ordered = sorted(probabilities.items(), key=lambda item: item[1], reverse=True)
    count, least = len(ordered), 1.0
    found = {}
    for place, (key, p) in enumerate(ordered):
        # Step-up from the largest p, whose rank is `count`: the running minimum keeps the order of the p.
        least = min(least, p * count / (count - place))
        found[key] = least
    return found


def _differences(changes: Sequence[Change]) -> tuple[Difference, ...]:
    """Every fact of the environments that differs between cells that both have a result."""
    found: Counter[tuple[str, str, str]] = Counter()
    for change in changes:
        if change.first is None or change.second is None or change.estimate is None:
            continue
        before, after = _facts(change.first), _facts(change.second)
        for name in sorted(before.keys() | after.keys()):
            pair = before.get(name, "not recorded"), after.get(name, "not recorded")
            if pair[0] != pair[1]:
                found[name, *pair] += 1
    return tuple(Difference(*fact, count) for fact, count in sorted(found.items()))


def _facts(cell: ComparedCell) -> dict[str, str]:
    return {"model sha256": cell.model_sha256[:12], "device": cell.device_name, **cell.environment}
