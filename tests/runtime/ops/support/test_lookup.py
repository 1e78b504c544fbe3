"""Tables of 513 points: how near interpolation comes, and where it is exact."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.ops.support.lookup import interpolated, lookup_table

LEVELS = np.arange(-32768, 32768)


@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_a_line_is_met_at_every_level(real):
    table = lookup_table(-1.0, 1.0, lambda x: x * real(0.5), (1 / 32768, 0), real)
    found = interpolated(LEVELS, table)
    assert np.abs(found - LEVELS / 2).max() <= 1


def test_a_curve_is_met_within_two_levels():
    """LiteRT moves every point by half of the error in the middle of its step; so both ends share it."""
    table = lookup_table(-10.0, 0.0, np.exp, (1 / 32768, 0), np.float64)
    exact = np.exp((LEVELS + 32768) / 65536 * 10.0 - 10.0) * 32768
    assert np.abs(interpolated(LEVELS, table) - exact).max() <= 2


def test_points_beyond_the_range_of_16_bits_are_clamped():
    table = lookup_table(-4.0, 4.0, lambda x: x * 9, (1 / 32768, 0))
    assert (table.min(), table.max()) == (-32768, 32767)
    assert table.shape == (513,)


def test_a_function_that_is_not_defined_everywhere_has_zeros_there():
    table = lookup_table(-1.0, 1.0, np.log, (1 / 32768, 0))
    assert table[0] == 0
