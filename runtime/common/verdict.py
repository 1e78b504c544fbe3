"""Grades a figure and judges a ratio: one grade, one verdict, for every reader.

A figure is known to H = h + b: h is the half width of its interval, b (the *allowance*) the factor by
which others can have slowed the timed rounds, although no round was disturbed enough to be repeated. Both are
natural logarithms, so that 0.03 is 3 %. Ratios are the baseline's time over the own one: above 1 is faster.
"""

import math
from typing import Final, Literal, TypeAlias

from runtime.common.statistics import MIN_UNITS, quantile_for

Grade: TypeAlias = Literal["good", "fair", "noisy", "void"]
"""`void`: the integrity of the measurement is broken, and its figures are never compared."""

Verdict: TypeAlias = Literal["faster", "slower", "same", "open"]

GOOD: Final = 0.03
"""Largest H of a good figure. Chosen: sessions of one machine differ by about as much."""

FAIR: Final = 0.10
"""Largest H of a fair figure. Chosen: an engineer still chooses a delegate by such a difference."""

DIFFERENT: Final = 0.01
"""Smallest relative difference that is called one. Chosen: what remains between equal things in a paired
ratio; of two equal arms at most 1 % are then told apart at every level (`benchmarks/statistics.py`). With 2 %
`quick` would find a difference of 5 % in 23 instead of 38 % of the cases where processes are slow."""

SAME: Final = 0.05
"""Relative difference within which two things count as equally fast. Chosen as the target of the level
`quick`: whoever looks quickly is told "the same" where no difference of that size is left to find."""

FAR: Final = 1.5
"""Factor beyond which neither a few slow processes nor a slow state of the machine explains a difference.
Chosen: both were seen to slow one of two arms 1.5 times, and states to last for half a minute."""

_MOST_BLOCKS: Final = 200
"""Blocks beyond which nobody measures to decide a ratio: the answer is then that it stays open."""


def half_of(interval: tuple[float, float] | None) -> float | None:
    """Return the half width of the logarithm of an interval; None for none, and for one from 0."""
    if interval is None or interval[0] <= 0.0:
        return None
    return math.log(interval[1] / interval[0]) / 2.0


def grade(half: float | None, allowance: float, *, void: bool = False, doubted: bool = False) -> Grade:
    """Grade a figure by the half width of its interval (None: it has none) and its allowance.

    One that is `doubted` is at best fair, however well it is known.
    """
    if void:
        return "void"
    known_to = math.inf if half is None else half + allowance
    if known_to <= GOOD and not doubted:
        return "good"
    return "fair" if known_to <= FAIR else "noisy"


def verdict(
    centre: float,
    half: float | None,
    allowance: float = 0.0,
    *,
    different: float = DIFFERENT,
    same: float = SAME,
) -> Verdict:
    """Judge the logarithm of a ratio over [centre - H, centre + H].

    It is `faster` or `slower` where all of that lies beyond `different` on one side, `same` where it lies
    within `same`, both relative differences such as 0.05; else it is `open`, as without an interval.
    """
    if half is None:
        return "open"
    # On logarithms, where "faster by a share" and "slower by it" are equally far from 1.
    low, high = centre - half - allowance, centre + half + allowance
    bound = math.log1p(different)
    if low > bound:
        return "faster"
    if high < -bound:
        return "slower"
    within = math.log1p(same)
    return "same" if -within <= low and high <= within else "open"


def blocks_to_decide(
    centre: float,
    spread: float | None,
    allowance: float = 0.0,
    *,
    blocks: int,
    different: float = DIFFERENT,
    same: float = SAME,
) -> int | None:
    """Return how many blocks would decide an open ratio whose centre and `spread` stay as they are.

    `spread` as in `statistics.Estimate`. None where the allowance, or how near the ratio is to a bound, keeps
    it open however many blocks there are.
    """
    if spread is None:
        return max(blocks + 1, MIN_UNITS)
    # With blocks the half width falls as 1 / sqrt(count); the allowance stays.
    for count in range(max(blocks + 1, MIN_UNITS), _MOST_BLOCKS + 1):
        half = quantile_for(count) * spread / math.sqrt(count)
        if verdict(centre, half, allowance, different=different, same=same) != "open":
            return count
    return None
