"""Kernels of copies, and the scales that a copy needs to be the same."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.errors import UnsupportedOperatorError
from runtime.ops.movement.copies import copies, copy, quantized_zero, require_same_scale
from tests.runtime.models import per_tensor
from tests.runtime.ops.contexts import bound, context

LEVELS = np.zeros(3, np.int8)


def test_every_run_copies_what_the_source_holds_then():
    source, target = np.zeros(3), np.zeros((2, 3))
    run = copy(target, source)
    source[:] = [1, 2, 3]
    run()
    np.testing.assert_array_equal(target, [[1, 2, 3], [1, 2, 3]])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_later_copies_lie_over_earlier_ones(count):
    target = np.zeros(4)
    copies([(target[i:], np.array(i + 1.0)) for i in range(count)])()
    assert target.tolist() == [1.0 + min(i, count - 1) if count else 0.0 for i in range(4)]


def test_values_of_one_scale_and_of_none_agree():
    q = per_tensor(0.1, 3)
    require_same_scale(context(), bound(LEVELS, q), bound(LEVELS), bound(LEVELS, per_tensor(0.1, 3)))
    for other in (per_tensor(0.2, 3), per_tensor(0.1, 4)):
        with pytest.raises(UnsupportedOperatorError, match="differ in scale or zero point"):
            require_same_scale(context(), bound(LEVELS, q), bound(LEVELS, other))


def test_real_zero_is_the_zero_point():
    assert quantized_zero(bound(LEVELS, per_tensor(0.1, -7))) == -7
    assert quantized_zero(bound(LEVELS)) == 0
