"""Compares the results of two runs cell by cell: by how much did the median change, and how sure is that?

The two were measured one after the other, not interleaved, so every ratio here is unpaired: Welch's test on
the logarithms of the processes' medians (Welch 1947), whose spread each result's `ci95` states. Over many
cells the probabilities are adjusted by Benjamini and Hochberg (1995), so that of all changes that are called
one at most a twentieth are false. What lies within the threshold is never called a change: machines differ by
as much from day to day, which no interval of one run sees.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from agent.wire.messages import Latency
from orchestrator.results import student
from orchestrator.results.records import CellRecord
from orchestrator.results.speedups import counted_latency

Verdict: TypeAlias = Literal["slower", "faster", "same", "inconclusive", "broken", "mended", "missing"]
"""`broken`: only the first run has a figure. `mended`: only the second. `missing`: neither."""

DEFAULT_THRESHOLD = 0.03
"""Smallest relative change that is called one. Chosen: sessions of one machine differ by about as much."""

FALSE_DISCOVERY_RATE = 0.05
"""Largest expected share of false ones among the changes that are called."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The second median over the first with its 95 % interval, and the probability under no change."""

    ratio: float
    ci95: tuple[float, float] | None
    p: float | None


@dataclass(frozen=True, slots=True)
class Change:
    """One cell in both runs. `key` names it; `why` says why there is no estimate."""

    key: tuple[str, ...]
    verdict: Verdict
    first: CellRecord | None
    second: CellRecord | None
    estimate: Estimate | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact of the environment that differs, in how many of the compared cells."""

    name: str
    before: str
    after: str
    cells: int


@dataclass(frozen=True, slots=True)
class Report:
    """All changes, the geometric mean of the ratios with its interval, and what differs beside the code."""

    changes: tuple[Change, ...]
    mean: Estimate | None
    differences: tuple[Difference, ...]

    @property
    def counts(self) -> Mapping[Verdict, int]:
        """How many cells have each verdict."""
        return Counter(change.verdict for change in self.changes)

    @property
    def has_regression(self) -> bool:
        """Whether a cell is slower, or has no right result any more."""
        return any(change.verdict in ("slower", "broken") for change in self.changes)


Keyed: TypeAlias = Mapping[tuple[str, ...], CellRecord]


def compare_runs(first: Keyed, second: Keyed, threshold: float = DEFAULT_THRESHOLD) -> Report:
    """Compare the cells of equal keys; `threshold` is a share, 0.03 for 3 %."""
    keys = list(dict.fromkeys((*first, *second)))
    estimates = {key: _estimate(first.get(key), second.get(key)) for key in keys}
    adjusted = _adjusted({key: found.p for key, found in estimates.items() if found and found.p is not None})
    changes = []
    for key in keys:
        before, after, estimate = first.get(key), second.get(key), estimates[key]
        if estimate is None:
            verdict, why = _without_estimate(before, after)
            changes.append(Change(key, verdict, before, after, why=why))
            continue
        verdict = _judged(estimate, adjusted.get(key), threshold)
        why = "" if estimate.ci95 is not None else "no interval: a run has fewer than three processes"
        if _source(before) == _source(after):
            why = "one result, reused; farm submit --force measures again"
        changes.append(Change(key, verdict, before, after, estimate, why))
    return Report(tuple(changes), _mean(estimates.values()), _differences(changes))


def _source(cell: CellRecord | None) -> str | None:
    """The cell whose runs gave the result."""
    return None if cell is None else cell.reused_from or cell.cell_id


def _estimate(first: CellRecord | None, second: CellRecord | None) -> Estimate | None:
    before = None if first is None else counted_latency(first)
    after = None if second is None else counted_latency(second)
    if before is None or after is None or not before.p50 or not after.p50:
        return None
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


def _spread(cell: CellRecord | None, latency: Latency) -> tuple[float, float] | None:
    """The variance of the mean log median, and its degrees of freedom, from the interval that states them."""
    if cell is None or cell.measurement is None or latency.ci95 is None:
        return None
    processes = cell.measurement.settings.get("processes", "")
    freedom = int(processes) - 1 if processes.isdecimal() else 0
    low, high = latency.ci95
    if freedom < 1 or low <= 0.0:
        return None
    return (math.log(high / low) / (2.0 * student.quantile(freedom))) ** 2, freedom


def _judged(estimate: Estimate, p: float | None, threshold: float) -> Verdict:
    if estimate.ci95 is None or p is None:
        return "inconclusive"
    bound = math.log1p(threshold)
    low, high = (math.log(end) for end in estimate.ci95)
    if p <= FALSE_DISCOVERY_RATE and abs(math.log(estimate.ratio)) > bound:
        return "slower" if estimate.ratio > 1.0 else "faster"
    return "same" if -bound <= low and high <= bound else "inconclusive"


def _without_estimate(first: CellRecord | None, second: CellRecord | None) -> tuple[Verdict, str]:
    had = first is not None and counted_latency(first) is not None
    has = second is not None and counted_latency(second) is not None
    whys = [f"{name}: {_state(cell)}" for name, cell, ok in (("A", first, had), ("B", second, has)) if not ok]
    if had and has:
        return "missing", "no p50: too few samples"
    return ("broken" if had else "mended" if has else "missing"), "; ".join(whys)


def _state(cell: CellRecord | None) -> str:
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


def _mean(estimates: Iterable[Estimate | None]) -> Estimate | None:
    """The geometric mean over the cells; its interval is over cells, each of which weighs the same."""
    logs = [math.log(estimate.ratio) for estimate in estimates if estimate is not None]
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


def _facts(cell: CellRecord) -> dict[str, str]:
    return {"model sha256": cell.model_sha256[:12], "device": cell.device_name, **cell.environment}
