"""Sequences in both layouts and directions, with a cell that only notes its steps."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.errors import ShapeError
from runtime.ops.recurrent.steps import over_time, time_first, two_way_outputs, two_way_shapes
from tests.runtime.ops.contexts import bound, context, shaped

TIME_MAJOR = {"time_major": True, "merge_outputs": True}
BATCH_MAJOR = {"time_major": False, "merge_outputs": False}


class Noting:
    def __init__(self) -> None:
        self.seen: list[object] = []

    def begin(self) -> None:
        self.seen.append("begin")

    def step(self, t: int, y: np.ndarray) -> None:
        self.seen.append(t)
        y[:] = t


@pytest.mark.parametrize(("backwards", "order"), [(False, [0, 1, 2]), (True, [2, 1, 0])])
def test_every_step_is_made_once_in_order_and_writes_its_own_output(backwards, order):
    cell, y = Noting(), np.full((3, 2, 4), -1.0)
    run = over_time(cell, y, backwards=backwards)
    run()
    run()
    assert cell.seen == ["begin", *order] * 2
    assert y[:, 0, 0].tolist() == [0, 1, 2]


def test_time_comes_first_in_either_layout():
    x = np.zeros((3, 2, 5))
    assert time_first(context(options=TIME_MAJOR), x).shape == (3, 2, 5)
    assert time_first(context(options=BATCH_MAJOR), x).shape == (2, 3, 5)


def test_both_directions_lie_side_by_side_or_apart():
    merged = context([shaped(3, 2, 5)], [bound(np.zeros((3, 2, 7), np.float32))], TIME_MAJOR)
    assert two_way_shapes(merged, 4, 3) == ((3, 2, 7),)
    forward, backward = two_way_outputs(merged, 4)
    assert (forward.shape, backward.shape) == ((3, 2, 4), (3, 2, 3))
    backward[:] = 1
    assert merged.write()[0, 0].tolist() == [0, 0, 0, 0, 1, 1, 1]
    outputs = [bound(np.zeros((2, 3, n), np.float32)) for n in (4, 3)]
    apart = context([shaped(2, 3, 5)], outputs, BATCH_MAJOR)
    assert two_way_shapes(apart, 4, 3) == ((2, 3, 4), (2, 3, 3))
    assert [y.shape for y in two_way_outputs(apart, 4)] == [(3, 2, 4), (3, 2, 3)]


def test_an_input_of_another_rank_is_refused():
    with pytest.raises(ShapeError, match=r"input 0 has shape \[2, 5\], rank 3 is needed"):
        two_way_shapes(context([shaped(2, 5)], options=BATCH_MAJOR), 4, 3)
