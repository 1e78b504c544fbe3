"""Student's t distribution for any degrees of freedom: two-sided probabilities and quantiles.

The probability is a regularised incomplete beta function, by its continued fraction (Press et al., "Numerical
Recipes", 3rd edition, section 6.4); the quantile inverts it by Newton's method.
"""

import math
from functools import lru_cache
from typing import Final

CONFIDENCE: Final = 0.95
"""Share of the intervals that hold the true value. Chosen: all that the farm writes have it; a larger one
makes all of them wider."""

_NORMAL: Final = 1.959963984540054
"""The quantile for endless degrees of freedom: the search begins near it, and takes longer from another."""

_KEPT: Final = 4096
"""Quantiles that are kept. Chosen: most cells of a run have equally many processes; more take more memory."""

_LAST_STEP: Final = 1e-3
"""Relative step at which the search ends: the error that remains is about its square. A larger one is less
exact, a smaller one takes a round more for digits that no interval needs."""

_STEPS = 300
"""Most terms of the continued fraction; fewer than 50 are used for the degrees of freedom that occur here."""

_PRECISION = 1e-12
"""Relative change of the fraction at which the iteration ends."""

_TINY = 1e-300
"""Stands in for a zero denominator of the continued fraction."""


def two_sided(t: float, freedom: float) -> float:
    """Return the probability of a value at least as far from 0 as `t`, in (0, 1]."""
    return _incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))


@lru_cache(_KEPT)
def quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Return the t that a two-sided interval of this `confidence` reaches to."""
    half = (freedom + 1.0) / 2.0
    scale = math.exp(math.lgamma(half) - math.lgamma(freedom / 2.0)) / math.sqrt(freedom * math.pi)
    z = _NORMAL
    # The first terms of Fisher and Cornish (1960).
    t = z * (
        1
        + (z**2 + 1) / (4 * freedom)
        + (5 * z**4 + 16 * z**2 + 3) / (96 * freedom**2)
        + (3 * z**6 + 19 * z**4 + 17 * z**2 - 15) / (384 * freedom**3)
    )
    step = math.inf
    while abs(step) > _LAST_STEP:
        p = two_sided(t, freedom)
        density = scale * (1.0 + t * t / freedom) ** -half
        # In the logarithms of both, the tail is nearly a straight line: few steps for any degrees of freedom.
        step = math.log(p / (1.0 - confidence)) * p / (2.0 * t * density)
        # Newton's step of log t: d log p / d log t is -2 t density / p.
        t *= math.exp(step)
    return t


def _incomplete_beta(a: float, b: float, x: float) -> float:
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    # The fraction converges fast below the mean of the distribution, so the other side is taken by symmetry.
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, 1.0 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Evaluate the continued fraction by Lentz's method."""
    c = 1.0
    d = 1.0 / (1.0 - (a + b) * x / (a + 1.0) or _TINY)
    value = d
    for m in range(1, _STEPS):
        place = a + 2 * m
        even = m * (b - m) * x / ((place - 1) * place)
        d = 1.0 / (1.0 + even * d or _TINY)
        c = 1.0 + even / c or _TINY
        value *= d * c
        odd = -(a + m) * (a + b + m) * x / (place * (place + 1))
        d = 1.0 / (1.0 + odd * d or _TINY)
        c = 1.0 + odd / c or _TINY
        value *= d * c
        if abs(d * c - 1.0) < _PRECISION:
            break
    return value
