"""Estimates the ratio of two results of a cell: by blocks where it was stored, else from two sessions.

Every ratio is the first's time over the second's: above 1, the second is faster. Results of two sessions are
compared by Welch's interval (1947), whose spread each `ci95` states: by their medians, or, where both were
measured in blocks with the same unchanged baseline, by their ratios to it, in which most of what a session
adds cancels. The rest is a further source of variance, which no result of one session shows
(`orchestrator.results.device_noise`); where nothing tells of it, nothing can be said of the difference.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from agent.wire.measurement import Ratio
from orchestrator.results.device_noise import Controls, SessionSpread, spread_of
from orchestrator.results.records import ComparedCell, Times, stated_count, tunings_of, void_reason
from orchestrator.results.speedups import Partners, counted_times, stored_ratio, was_measured_with
from runtime.common import student
from runtime.common.statistics import MIN_UNITS, freedom_of, quantile_for
from runtime.common.verdict import half_of

Variance: TypeAlias = tuple[float, float]
"""Of the logarithm of a median, with its degrees of freedom."""

NO_INTERVAL = "no interval: a run has fewer than three processes"
NO_SESSIONS = (
    "unpaired, and how much sessions differ there is not known (farm devices noise): "
    "farm compare … --rerun decides"
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The first's time over the second's with its 95 % interval, and the probability under no difference.

    `allowance`: the logarithm of what others can have slowed either side by. `stored`: the ratio of
    the blocks, None for an unpaired one. `why_open`: why no verdict can be given, empty where the interval
    decides.
    """

    ratio: float
    ci95: tuple[float, float] | None
    p: float | None
    allowance: float = 0.0
    stored: Ratio | None = None
    why_open: str = ""

    @property
    def blocks(self) -> int:
        """The number of blocks; 0 for an unpaired ratio."""
        return 0 if self.stored is None else self.stored.blocks


_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class _Sessions:
    """Two results of two sessions: the `log` of their ratio, and the variances of both sides where known.

    `over_baseline`: it is the ratio of two ratios over the same unchanged baseline. `unchanged`: model,
    options, conditions and versions are equal, so that all of it comes from the sessions.
    """

    first: ComparedCell
    second: ComparedCell
    log: float
    variances: Sequence[Variance]
    allowance: float
    over_baseline: bool
    unchanged: bool

    @property
    def is_control(self) -> bool:
        """Return whether this tells how much sessions differ."""
        return self.unchanged and len(self.variances) == 2

    @property
    def variance(self) -> float:
        """Return what the blocks of both sides explain."""
        return math.fsum(variance for variance, _ in self.variances)

    @property
    def kind(self) -> tuple[bool, str, str]:
        """Return what the spread of sessions is pooled over."""
        return self.over_baseline, self.first.device, self.second.device


def estimates(
    first: Mapping[_Key, ComparedCell], second: Mapping[_Key, ComparedCell], keys: Iterable[_Key]
) -> dict[_Key, Estimate | None]:
    """Return the ratio of each key's results; None where one of them has no median that counts."""
    found: dict[_Key, Estimate | None] = {}
    unpaired_ones: dict[_Key, _Sessions] = {}
    partners = Partners(first.values()), Partners(second.values())
    for key in keys:
        made = _compared(first.get(key), second.get(key), partners)
        if isinstance(made, _Sessions):
            unpaired_ones[key] = made
            found[key] = None
        else:
            found[key] = made
    controls: dict[tuple[bool, str, str], Controls] = {}
    for one in unpaired_ones.values():
        if one.is_control:
            controls[one.kind] = controls.get(one.kind, Controls()).with_one(one.log, one.variance)
    # A second pass: how much sessions differ is known only once every pair was looked at.
    for key, one in unpaired_ones.items():
        if len(one.variances) < 2:
            found[key] = Estimate(math.exp(one.log), None, None, one.allowance, why_open=NO_INTERVAL)
            continue
        others = controls.get(one.kind, Controls())
        if one.is_control:
            others = others.without_one(one.log, one.variance)
        spread = spread_of(others, one.first.noise, one.second.noise)
        found[key] = unpaired(one.log, one.variances, spread, one.allowance)
    return found


def _compared(
    first: ComparedCell | None,
    second: ComparedCell | None,
    partners: tuple[Partners[ComparedCell], Partners[ComparedCell]],
) -> Estimate | _Sessions | None:
    # `estimate` of templates/compare.js chooses the ratio in the same order.
    if first is None or second is None:
        return None
    before, after = counted_times(first), counted_times(second)
    if before is None or after is None or not before.p50 or not after.p50:
        return None
    # Where one side was measured in blocks with the other as its baseline, no session lies between them. The
    # stored ratio is the baseline's time over the cell's own: inverted where the second is the baseline.
    of_first, of_second = stored_ratio(first), stored_ratio(second)
    if of_second is not None and was_measured_with(of_second, first):
        return by_blocks(of_second)
    if of_first is not None and was_measured_with(of_first, second):
        return by_blocks(of_first, -1)
    # A result that one run reused from the other says nothing of sessions.
    unchanged = is_unchanged(first, second) and source_of(first) != source_of(second)
    if of_first is not None and of_second is not None:
        base, base_again = partners[0].of(first), partners[1].of(second)
        errors = [(error**2, freedom) for error, freedom in filter(None, map(_error, (of_first, of_second)))]
        if len(errors) == 2 and base and base_again and is_unchanged(base, base_again):
            # (base / second) / (base / first) is first / second: the time of the baseline drops out.
            log = math.log(of_second.median / of_first.median)
            allowance = of_first.allowance + of_second.allowance
            return _Sessions(first, second, log, errors, allowance, True, unchanged)
    found = _variance(first, before), _variance(second, after)
    log = math.log(before.p50 / after.p50)
    allowance = _allowance(first) + _allowance(second)
    return _Sessions(first, second, log, list(filter(None, found)), allowance, False, unchanged)


def source_of(cell: ComparedCell) -> str:
    """Return the cell whose runs gave the result."""
    return cell.reused_from or cell.cell_id


def is_unchanged(first: ComparedCell, second: ComparedCell) -> bool:
    """Return whether model, options, conditions and versions of two results are equal, and both count."""
    if first.model_sha256 != second.model_sha256 or first.environment != second.environment:
        return False
    if (first.delegate_kind, first.delegate_options) != (second.delegate_kind, second.delegate_options):
        return False
    return first.device == second.device and void_reason(first) is None and void_reason(second) is None


def by_blocks(ratio: Ratio, power: int = 1) -> Estimate:
    """Return the estimate that a stored ratio is; `power` -1 where the baseline is the second of the two."""
    known = _error(ratio)
    if ratio.ci95 is None or known is None:
        return Estimate(ratio.median**power, None, None, ratio.allowance, ratio)
    low, high = sorted(end**power for end in ratio.ci95)
    p = _probability(math.log(ratio.median), ratio.allowance, *known)
    return Estimate(ratio.median**power, (low, high), p, ratio.allowance, ratio)


def _error(ratio: Ratio) -> tuple[float, float] | None:
    """Return the standard error of a stored ratio's logarithm and its degrees of freedom."""
    half = half_of(ratio.ci95)
    if half is None:
        return None
    # The interval is over the means of the tunings as soon as there are several (`Ratio`).
    units = ratio.tunings if ratio.tunings > 1 else ratio.blocks
    if ratio.spread is None:
        # Of an older agent, whose intervals were Student's however many blocks there were.
        freedom = units - 1
        return half / student.quantile(freedom), freedom
    # `spread` is the standard error times the root of the units (`statistics.Estimate`).
    return ratio.spread / math.sqrt(units), freedom_of(units)


def unpaired(
    log: float, of_times: Sequence[Variance], spread: SessionSpread | None, allowance: float = 0.0
) -> Estimate:
    """Return the estimate of two sessions: by the `log` of their ratio and all variances."""
    ratio = math.exp(log)
    if spread is None:
        return Estimate(ratio, None, None, allowance, why_open=NO_SESSIONS)
    parts = [*of_times, *spread.parts]
    total = math.fsum(variance for variance, _ in parts)
    # Where nothing varies there is no t: any difference is certain.
    if total <= 0.0:
        return Estimate(ratio, (ratio, ratio), 0.0 if log else 1.0, allowance)
    # Degrees of freedom of a sum of variances, by Welch and Satterthwaite.
    freedom = total**2 / math.fsum(variance**2 / freedom for variance, freedom in parts)
    error = math.sqrt(total)
    half = student.quantile(freedom) * error
    interval = math.exp(log - half), math.exp(log + half)
    return Estimate(
        ratio, interval, _probability(log, allowance, error, freedom), allowance, why_open=spread.text
    )


def mean_estimate(estimates: Iterable[Estimate]) -> Estimate | None:
    """Return the geometric mean over the cells; its interval is over cells, each of which weighs the same."""
    logs = [math.log(one.ratio) for one in estimates]
    if not logs:
        return None
    centre = math.fsum(logs) / len(logs)
    # One cell does not tell how cells vary.
    if len(logs) < 2:
        return Estimate(math.exp(centre), None, None)
    # Of the mean: the variance of the cells over their number.
    variance = math.fsum((value - centre) ** 2 for value in logs) / (len(logs) - 1) / len(logs)
    half = student.quantile(len(logs) - 1) * math.sqrt(variance)
    return Estimate(math.exp(centre), (math.exp(centre - half), math.exp(centre + half)), None)


def _variance(cell: ComparedCell, times: Times) -> Variance | None:
    """Return that of the mean log median, from the interval that states it."""
    if cell.measurement is None:
        return None
    half, tunings = half_of(times.ci95), tunings_of(cell.measurement)
    # What the interval of p50 is over: tunings if there are several, else blocks, else processes.
    quality, units = cell.measurement.quality, stated_count(cell.measurement.settings, "processes")
    if quality is not None and quality.blocks:
        units = quality.blocks
    if tunings > 1:
        units = tunings
    if half is None or units < MIN_UNITS:
        return None
    # The half width is this quantile times the standard error (`statistics.estimate`).
    return (half / quantile_for(units)) ** 2, freedom_of(units)


def _allowance(cell: ComparedCell) -> float:
    quality = None if cell.measurement is None else cell.measurement.quality
    return 0.0 if quality is None else quality.allowance


def _probability(log: float, allowance: float, error: float, freedom: float) -> float:
    """Return that of such a difference between equal things, of which others may have made the allowance."""
    beyond = max(0.0, abs(log) - allowance)
    if error <= 0.0:
        return 0.0 if beyond else 1.0
    return student.two_sided(beyond / error, freedom)
