"""Student's t distribution for any degrees of freedom: two-sided probabilities and quantiles.

The probability is a regularised incomplete beta function, by its continued fraction (Press et al., "Numerical
Recipes", 3rd edition, section 6.4); the quantile inverts it by bisection.
"""

from __future__ import annotations

import math

_STEPS = 300
"""Most terms of the continued fraction; fewer than 50 are used for the degrees of freedom that occur here."""

_PRECISION = 1e-12
"""Relative change of the fraction, and of the quantile, at which the iteration ends."""

_TINY = 1e-300
"""Stands in for a zero denominator of the continued fraction."""


def two_sided(t: float, freedom: float) -> float:
    """Return the probability of a value at least as far from 0 as `t`, in (0, 1]."""
    return _incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))


def quantile(freedom: float, confidence: float = 0.95) -> float:
    """Return the t that a two-sided interval of this confidence reaches to."""
    low, high = 0.0, 1.0
    while two_sided(high, freedom) > 1.0 - confidence:
        low, high = high, 2.0 * high
    while high - low > _PRECISION * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if two_sided(middle, freedom) > 1.0 - confidence else (low, middle)
    return high


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
    """The continued fraction by Lentz's method."""
    c = 1.0
    d = 1.0 / _nonzero(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for factor in (even, odd):
            d = 1.0 / _nonzero(1.0 + factor * d)
            c = _nonzero(1.0 + factor / c)
            value *= d * c
        if abs(d * c - 1.0) < _PRECISION:
            break
    return value


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
