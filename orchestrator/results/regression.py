"""Compares the results of two runs cell by cell: by how much did the median change, and how sure is that?

Two runs were measured one after the other, not interleaved, so that their ratios are unpaired: Welch's test
on the logarithms of the medians of processes, or of tunings where these varied (Welch 1947), whose spread
each result's `ci95` states. A delegate and the baseline that it was measured with by blocks are compared by
the stored, paired ratio. Over many cells the probabilities are adjusted by Benjamini and Hochberg (1995), so
that of all changes that are called one at most a twentieth are false. What lies within the threshold is never
called a change: machines differ by as much from day to day, which no interval of one run sees. The threshold
of paired ratios, in which a day's conditions cancel, is smaller.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from agent.wire.measurement import Ratio
from orchestrator.results.comparable import Comparable, Times
from orchestrator.results.doubt import doubt
from orchestrator.results.speedups import (
    counted_times,
    least_difference,
    stored_ratio,
    was_measured_with,
)
from runtime.common import student
from runtime.common.statistics import MIN_UNITS

Verdict: TypeAlias = Literal["slower", "faster", "same", "inconclusive", "broken", "mended", "missing"]
"""`broken`: only the first run has a figure. `mended`: only the second. `missing`: neither, or what there is
was imported."""

UNPAIRED_THRESHOLD = 0.03
"""Smallest relative change between two sessions that is called one. Chosen: sessions of one machine differ by
about as much."""

PAIRED_THRESHOLD = 0.01
"""The same of a ratio by blocks, in which what a session does to both sides cancels. Chosen: what remains
between equal things, and a third of the least change that `standard` is to find; a larger one hides changes
that the interval shows."""

FALSE_DISCOVERY_RATE = 0.05
"""Largest expected share of false ones among the changes that are called."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The second median over the first with its 95 % interval, and the probability under no change.

    `blocks`: of a paired ratio; 0 for an unpaired one.
    """

    ratio: float
    ci95: tuple[float, float] | None
    p: float | None
    blocks: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """One cell in both runs. `key` names it; `why` says why there is no estimate, or no verdict over it.

    `doubtful`: a result is suspect or invalid, so that nothing is said of the difference.
    """

    key: tuple[str, ...]
    verdict: Verdict
    first: Comparable | None
    second: Comparable | None
    estimate: Estimate | None = None
    why: str = ""
    doubtful: bool = False

    @property
    def is_imported(self) -> bool:
        """Whether another tool measured one of the two: such a change has no verdict and is in no mean."""
        return _is_imported(self.first, self.second)

    @property
    def is_one_result(self) -> bool:
        """Whether both cells show the same result, which one of them reused."""
        return self.first is not None and _source(self.first) == _source(self.second)


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

    The mean is over `mean_count` ratios of the farm's own results: the paired ones, where there are any.
    """

    changes: tuple[Change, ...]
    mean: Estimate | None
    differences: tuple[Difference, ...]
    mean_count: int = 0
    mean_paired: bool = False

    @property
    def counts(self) -> Mapping[Verdict, int]:
        """How many cells have each verdict."""
        return Counter(change.verdict for change in self.changes)

    @property
    def doubtful(self) -> tuple[Change, ...]:
        """The cells of which a result is suspect or invalid."""
        return tuple(change for change in self.changes if change.doubtful)

    @property
    def has_regression(self) -> bool:
        """Whether a cell is slower, or has no right result any more."""
        return any(change.verdict in ("slower", "broken") for change in self.changes)


Keyed: TypeAlias = Mapping[tuple[str, ...], Comparable]
_Cell = TypeVar("_Cell", bound=Comparable)


def by_names(cells: Iterable[_Cell]) -> dict[tuple[str, ...], _Cell]:
    """The cells by what they are called in every campaign: model, delegate, device and level."""
    return {(cell.model, cell.delegate, cell.device, cell.level): cell for cell in cells}


def compare_runs(
    first: Keyed, second: Keyed, threshold: float | None = None, *, within_run: bool = False
) -> Report:
    """Compare the cells of equal keys; `threshold` is a share, 0.03 for 3 %, and None that of each kind.

    `within_run`: both sides are of one run, where only cells that were measured by blocks can be compared.
    """
    keys = list(dict.fromkeys((*first, *second)))
    estimates = {key: _estimate(first.get(key), second.get(key)) for key in keys}
    doubts = {key: _doubts(first.get(key), second.get(key)) for key, found in estimates.items() if found}
    judged = {key: found for key, found in estimates.items() if found and not doubts[key]}
    adjusted = _adjusted({key: found.p for key, found in judged.items() if found.p is not None})
    changes = []
    for key in keys:
        before, after, estimate = first.get(key), second.get(key), estimates[key]
        if estimate is None:
            verdict, why = _without_estimate(before, after)
            changes.append(Change(key, verdict, before, after, why=why))
            continue
        least = least_difference(_threshold(estimate, threshold), before, after)
        verdict = verdict_over(estimate, adjusted.get(key), least)
        why = "" if estimate.ci95 is not None else "no interval: a run has fewer than three processes"
        if within_run and estimate.blocks < MIN_UNITS:
            few = f"{estimate.blocks} blocks; a verdict needs {MIN_UNITS}"
            verdict, why = "inconclusive", few if estimate.blocks else "unpaired: not measured by blocks"
        if doubts[key]:
            verdict, why = "inconclusive", doubts[key]
        if _source(before) == _source(after):
            why = "one result, reused; farm submit --force measures again"
        changes.append(Change(key, verdict, before, after, estimate, why, bool(doubts[key])))
    made = [change.estimate for change in changes if change.estimate and not change.is_imported]
    paired = [estimate for estimate in made if estimate.blocks]
    averaged = paired or made
    return Report(
        tuple(changes), _mean(averaged), _differences(changes), len(averaged), mean_paired=bool(paired)
    )


def _threshold(estimate: Estimate, given: float | None) -> float:
    if given is not None:
        return given
    return PAIRED_THRESHOLD if estimate.blocks else UNPAIRED_THRESHOLD


def _doubts(first: Comparable | None, second: Comparable | None) -> str:
    """`B suspect: other programs used 1.2 of 2 CPUs`; empty where both results may be judged."""
    found = (("A", doubt(first)), ("B", doubt(second)))
    return "; ".join(f"{side} {text}" for side, text in found if text is not None)


def _is_imported(*cells: Comparable | None) -> bool:
    return any(cell is not None and cell.imported is not None for cell in cells)


def _source(cell: Comparable | None) -> str | None:
    """The cell whose runs gave the result."""
    return None if cell is None else cell.reused_from or cell.cell_id


def _estimate(first: Comparable | None, second: Comparable | None) -> Estimate | None:
    before = None if first is None else counted_times(first)
    after = None if second is None else counted_times(second)
    if before is None or after is None or not before.p50 or not after.p50:
        return None
    paired = _paired(first, second)
    if paired is not None:
        return paired
    ratio = after.p50 / before.p50
    one, two = _spread(first, before), _spread(second, after)
    if one is None or two is None:
        return Estimate(ratio, None, None)
    (variance_1, freedom_1), (variance_2, freedom_2) = one, two
    total = variance_1 + variance_2
    if total <= 0.0:
        return Estimate(ratio, (ratio, ratio), 0.0 if ratio != 1.0 else 1.0)
    freedom = total**2 / (variance_1**2 / freedom_1 + variance_2**2 / freedom_2)
    error = math.sqrt(total)
    half = student.quantile(freedom) * error
    p = student.two_sided(math.log(ratio) / error, freedom)
    return Estimate(ratio, (ratio * math.exp(-half), ratio * math.exp(half)), p)


def _paired(first: Comparable | None, second: Comparable | None) -> Estimate | None:
    """The ratio that was stored when one of the two was measured by blocks with the other as its baseline."""
    if first is None or second is None:
        return None
    for cell, baseline, power in ((second, first, -1), (first, second, 1)):
        ratio = stored_ratio(cell)
        if ratio is None or not was_measured_with(ratio, baseline):
            continue
        return by_blocks(ratio, power)
    return None


def by_blocks(ratio: Ratio, power: int = -1) -> Estimate:
    """What a stored ratio (the baseline's time over the own one) says of the change from the baseline to it.

    `power`: 1 where the baseline is the second of the two.
    """
    if ratio.ci95 is None:
        return Estimate(ratio.median**power, None, None, ratio.blocks)
    low, high = sorted(end**power for end in ratio.ci95)
    freedom = (ratio.tunings if ratio.tunings > 1 else ratio.blocks) - 1
    error = math.log(high / low) / (2.0 * student.quantile(freedom))
    p = student.two_sided(math.log(ratio.median) / error, freedom) if error else 0.0
    return Estimate(ratio.median**power, (low, high), p, ratio.blocks)


def _spread(cell: Comparable | None, times: Times) -> tuple[float, float] | None:
    """The variance of the mean log median, and its degrees of freedom, from the interval that states them."""
    if cell is None or cell.measurement is None or times.ci95 is None:
        return None
    processes, varied = cell.measurement.settings.get("processes", ""), cell.measurement.variation
    freedom = int(processes) - 1 if processes.isdecimal() else 0
    if varied is not None and varied.level == "tuning":
        freedom = varied.tunings - 1
    low, high = times.ci95
    if freedom < 1 or low <= 0.0:
        return None
    return (math.log(high / low) / (2.0 * student.quantile(freedom))) ** 2, freedom


def verdict_over(estimate: Estimate, p: float | None, threshold: float) -> Verdict:
    """The verdict over a change; `p`: its probability under none, adjusted for how many are judged."""
    if estimate.ci95 is None or p is None:
        return "inconclusive"
    bound = math.log1p(threshold)
    low, high = (math.log(end) for end in estimate.ci95)
    if p <= FALSE_DISCOVERY_RATE and abs(math.log(estimate.ratio)) > bound:
        return "slower" if estimate.ratio > 1.0 else "faster"
    return "same" if -bound <= low and high <= bound else "inconclusive"


def _without_estimate(first: Comparable | None, second: Comparable | None) -> tuple[Verdict, str]:
    had = first is not None and counted_times(first) is not None
    has = second is not None and counted_times(second) is not None
    whys = [f"{name}: {_state(cell)}" for name, cell, ok in (("A", first, had), ("B", second, has)) if not ok]
    if had and has:
        return "missing", "no p50: too few samples"
    if _is_imported(first, second):
        return "missing", "; ".join((_doubts(first, second), *whys))
    return ("broken" if had else "mended" if has else "missing"), "; ".join(whys)


def _state(cell: Comparable | None) -> str:
    if cell is None:
        return "not in this run"
    if cell.reason is None:
        return "wrong output" if cell.struck_out else cell.status
    return f"{cell.reason.code}: {cell.reason.text}"


def _adjusted(probabilities: Mapping[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    """Benjamini and Hochberg's adjusted probabilities."""
    ordered = sorted(probabilities.items(), key=lambda item: item[1], reverse=True)
    count, least = len(ordered), 1.0
    found = {}
    for place, (key, p) in enumerate(ordered):
        least = min(least, p * count / (count - place))
        found[key] = least
    return found


def _mean(estimates: Iterable[Estimate]) -> Estimate | None:
    """The geometric mean over the cells; its interval is over cells, each of which weighs the same."""
    logs = [math.log(estimate.ratio) for estimate in estimates]
    if not logs:
        return None
    centre = math.fsum(logs) / len(logs)
    if len(logs) < 2:
        return Estimate(math.exp(centre), None, None)
    variance = math.fsum((value - centre) ** 2 for value in logs) / (len(logs) - 1) / len(logs)
    half = student.quantile(len(logs) - 1) * math.sqrt(variance)
    return Estimate(math.exp(centre), (math.exp(centre - half), math.exp(centre + half)), None)


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


def _facts(cell: Comparable) -> dict[str, str]:
    return {"model sha256": cell.model_sha256[:12], "device": cell.device_name, **cell.environment}
