"""95 % intervals of shares, of means, and of differences between paired answers."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

Interval = tuple[float, float]

Z_975: Final = 1.959964
"""97.5 % quantile of the normal distribution: every interval here is one of 95 %."""

_HALVINGS: Final = 50
"""Halvings of a search in an interval of length 1. Each is a bit; a float64 has 52."""


def share_interval(right: int, count: int) -> Interval:
    """Return the interval of the share of right answers to expect of other samples of the same kind.

    Wilson's score interval (Wilson 1927, "Probable inference"): it holds for few samples too, and where all
    or none are right. Raises `ValueError` unless 0 <= right <= count and count > 0.
    """
    if not 0 <= right <= count or not count:
        raise ValueError(f"{right} right answers of {count}")
    share, z2 = right / count, Z_975**2
    centre = share + z2 / (2 * count)
    half = Z_975 * math.sqrt(share * (1 - share) / count + z2 / (4 * count * count))
    scale = 1 + z2 / count
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def paired_share_interval(gained: int, lost: int, count: int) -> Interval:
    """Return the interval of the difference of two shares that were found on the same `count` samples.

    `gained` samples are right in the second alone, `lost` in the first alone. The interval holds the
    differences that McNemar's score test, extended to differences other than 0, does not reject (Tango 1998,
    "Equivalence test and confidence interval for the difference in proportions for the paired-sample
    design"). Raises `ValueError` for counts that do not go together.
    """
    if min(gained, lost) < 0 or gained + lost > count or not count:
        raise ValueError(f"{gained} gained and {lost} lost of {count}")

    def score(difference: float) -> float:
        """Tango's statistic, which falls as the difference grows."""
        # q is the larger root of 2 n q^2 + b q + c = 0: the likeliest share of lost samples under this
        # difference.
        b = -gained - lost + (2 * count - gained + lost) * difference
        c = -lost * difference * (1 - difference)
        q = (math.sqrt(max(0.0, b * b - 8 * count * c)) - b) / (4 * count)
        variance = count * (2 * q + difference * (1 - difference))
        distance = gained - lost - count * difference
        return distance / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, distance)

    estimate = (gained - lost) / count
    low = -1.0 if estimate == -1.0 else _boundary(lambda d: score(d) < Z_975, -1.0, estimate)
    high = 1.0 if estimate == 1.0 else _boundary(lambda d: score(d) < -Z_975, estimate, 1.0)
    return low, high


def _boundary(is_beyond: Callable[[float], bool], low: float, high: float) -> float:
    """Return the place from which on a condition holds."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_beyond(middle) else (middle, high)
    return (low + high) / 2


@dataclass(slots=True)
class Mean:
    """A mean and its interval, value by value (Welford 1962, "Note on a method for calculating corrected
    sums of squares and products"), without keeping the values.
    """

    count: int = 0
    value: float = 0.0
    _squares: float = 0.0

    def add(self, value: float) -> None:
        """Add a value."""
        self.count += 1
        step = value - self.value
        self.value += step / self.count
        self._squares += step * (value - self.value)

    @property
    def interval(self) -> Interval | None:
        """Return the normal approximation's interval; None for fewer than two values."""
        if self.count < 2:
            return None
        half = Z_975 * math.sqrt(self._squares / (self.count - 1) / self.count)
        return self.value - half, self.value + half

    @classmethod
    def of(cls, values: Iterable[float]) -> "Mean":
        """Return the mean of values."""
        found = cls()
        for value in values:
            found.add(value)
        return found


Verdict = Literal["pass", "fail", "inconclusive"]


def judged_share(interval: Interval, at_least: float) -> Verdict:
    """Judge an interval of a share as budgets judge theirs: by the whole of it."""
    low, high = interval
    if low >= at_least:
        return "pass"
    return "fail" if high < at_least else "inconclusive"


def judged_drop(interval: Interval, most: float, *, higher_is_better: bool = True) -> Verdict:
    """Judge a difference from a baseline by the whole of its interval: `most` is the largest drop allowed."""
    low, high = interval if higher_is_better else (-interval[1], -interval[0])
    return judged_share((low, high), -most)
