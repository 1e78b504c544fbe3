"""Student's t against published quantiles."""

from __future__ import annotations

import pytest

from runtime.common.student import quantile, two_sided

PUBLISHED = {1: 12.7062, 2: 4.3027, 4: 2.7764, 9: 2.2622, 19: 2.0930, 30: 2.0423, 120: 1.9799}
"""97.5 % quantiles by degrees of freedom."""


@pytest.mark.parametrize(("freedom", "value"), PUBLISHED.items())
def test_quantiles_are_those_of_the_tables(freedom: int, value: float) -> None:
    assert quantile(freedom) == pytest.approx(value, abs=6e-5)


@pytest.mark.parametrize("freedom", [1.0, 1.001, 1.7, 2.5, 3.3, 7.9, 38.0, 1e3, 1e6])
def test_a_twentieth_is_beyond_the_quantile_of_any_degrees_of_freedom(freedom: float) -> None:
    assert two_sided(quantile(freedom), freedom) == pytest.approx(0.05, rel=1e-6)


def test_the_probability_falls_from_one() -> None:
    assert two_sided(0.0, 5) == 1.0
    assert two_sided(1.0, 1) == pytest.approx(0.5), "Cauchy's quartiles are at 1"
    assert two_sided(50.0, 5) < 1e-6
    assert quantile(2.5) > quantile(3)
