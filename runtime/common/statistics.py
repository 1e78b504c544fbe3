"""Estimate a centre and its interval from repeated measurements.

The units that are repeated (blocks, processes, tunings) are independent; samples within one are not, and are
never pooled for an interval. All values are natural logarithms of times or of ratios, so that an interval is
a factor to either side: a half width of 0.03 is 3 %.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from runtime.common import student

MIN_UNITS: Final = 3
"""Units below which there is no interval. Chosen: from two, t has one degree of freedom, and the interval is
wider than any figure."""

ROBUST_UNITS: Final = 6
"""Units from which on the mean is trimmed. Of fewer, trimming a fifth at each end would leave no unit out."""

TRIM: Final = 0.2
"""Share of the units that is trimmed at each end, as Yuen (1974) and Wilcox recommend: one slow process in
six does not move the centre, and normal data lose little."""

LOOKS_CONFIDENCE: Final = 0.955
"""Confidence of a single interval from `ROBUST_UNITS` on, two-sided (t at its 97.75 % quantile). What it is
above 0.95 pays for the trimmed mean, whose few kept units t takes for normal ones, and for the looks: a
measurement that stops when it knows looks at its interval after every block. Chosen by
`benchmarks/statistics.py`, so that the interval at the stop holds the truth in 94 to 97 % of cases: 94 %
where no process is slow for its whole life, 97 % where up to a quarter are. At 0.97 it is 96 to 98 %, and a
difference of 5 % is found less often."""

_STEP: Final = 100
"""Part of a count of units by which a search for a larger one goes on: nobody plans units to the per cent."""

_NORMAL: Final = 1.96
"""Least number of standard errors of an interval, that of a normal distribution."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A centre and the half width of its interval, both natural logarithms.

    `half` is None below `MIN_UNITS`. `spread`: the standard error times the root of `units`, which says how
    the interval narrows with more of them.
    """

    centre: float
    half: float | None
    units: int
    spread: float | None = None

    @property
    def value(self) -> float:
        """The centre as a factor or in the unit of the times."""
        return math.exp(self.centre)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ends of the interval, in the same unit."""
        if self.half is None:
            return None
        return math.exp(self.centre - self.half), math.exp(self.centre + self.half)


def units(logs: Sequence[float], groups: Sequence[Hashable]) -> list[float]:
    """Return the independent units of repeated measurements that belong to groups, such as tunings.

    Those of one group share its choices: once there are several groups, a unit is the mean of one.
    """
    members: dict[Hashable, list[float]] = {}
    for log, group in zip(logs, groups, strict=True):
        members.setdefault(group, []).append(log)
    return [fmean(group) for group in members.values()] if len(members) > 1 else list(logs)


def estimate(logs: Sequence[float]) -> Estimate:
    """Estimate the centre of independent units from their logarithms. Raises `ValueError` for none.

    Below `ROBUST_UNITS` it is the mean with Student's interval; from there on the trimmed mean with the
    Winsorised variance (Yuen 1974, "The two-sample trimmed t for unequal population variances").
    """
    count = len(logs)
    if count == 0:
        raise ValueError("an estimate of no units")
    if count < MIN_UNITS:
        return Estimate(fmean(logs), None, count)
    if count < ROBUST_UNITS:
        error = math.sqrt(_variance(logs) / count)
        return Estimate(fmean(logs), student.quantile(count - 1) * error, count, error * math.sqrt(count))
    ordered, cut = sorted(logs), int(TRIM * count)
    kept = ordered[cut : count - cut]
    winsorised = [*([kept[0]] * cut), *kept, *([kept[-1]] * cut)]
    left = len(kept)
    # Yuen's standard error: the Winsorised sum of squares over h (h - 1), h the units that are kept.
    error = math.sqrt((count - 1) * _variance(winsorised) / (left * (left - 1)))
    half = student.quantile(left - 1, LOOKS_CONFIDENCE) * error
    return Estimate(fmean(kept), half, count, error * math.sqrt(count))


def _variance(values: Sequence[float]) -> float:
    # A fifth of the time of `statistics.variance`, which computes in fractions: simulations need millions.
    mean = fmean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def freedom_of(units: int) -> int:
    """Return the degrees of freedom of the interval of so many units."""
    return units - 1 if units < ROBUST_UNITS else units - 2 * int(TRIM * units) - 1


def quantile_for(units: int) -> float:
    """Return the factor between the standard error of so many units and their half width."""
    if units < ROBUST_UNITS:
        return student.quantile(freedom_of(units))
    return student.quantile(freedom_of(units), LOOKS_CONFIDENCE)


def units_for(spread: float, half: float) -> int:
    """Return how many units of this `spread` (`Estimate`) have an interval of this half width."""
    # A lower bound to begin with, because Student's quantile is never below the normal one.
    count = max(MIN_UNITS, math.ceil((_NORMAL * spread / half) ** 2))
    while quantile_for(count) * spread / math.sqrt(count) > half:
        count += max(1, count // _STEP)
    return count


def geometric_mean(values: Iterable[float]) -> float:
    """Return exp(mean(ln v)); zero if any value is zero. Raises `ValueError` for no values."""
    listed = list(values)
    if not listed:
        raise ValueError("a geometric mean of no values")
    if min(listed) <= 0.0:
        return 0.0
    return math.exp(math.fsum(math.log(v) for v in listed) / len(listed))


Costs = Sequence[float | None]
"""Costs of one alternative, the same ones for all; None where one is not known."""


def on_front(alternatives: Sequence[Costs]) -> tuple[bool, ...]:
    """Return for each alternative whether no other is at least as cheap in all and cheaper in something.

    A cost that one of two lacks does not decide between them.
    """
    return tuple(not any(_beats(other, one) for other in alternatives) for one in alternatives)


def _beats(a: Costs, b: Costs) -> bool:
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)
