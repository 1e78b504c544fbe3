"""Sharing rows among threads: every row once, errors of every lane, as many lanes as pay."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.ops.support.parallel import lane_count, row_blocks, shares, together
from tests.runtime.ops.contexts import context


@given(st.integers(0, 1000), st.integers(1, 70))
def test_shares_cover_every_item_once_and_differ_by_one_at_most(count, lanes):
    parts = shares(count, lanes)
    assert [i for part in parts for i in part] == list(range(count))
    assert len(parts) == min(count, lanes)
    assert not parts or max(map(len, parts)) - min(map(len, parts)) <= 1


@given(st.integers(0, 300), st.integers(1, 8), st.integers(1, 50))
def test_blocks_cover_every_row_once_and_are_no_larger_than_asked(count, lanes, most):
    blocks = [block for lane in row_blocks(count, lanes, most) for block in lane]
    assert [i for block in blocks for i in range(block.start, block.stop)] == list(range(count))
    assert all(0 < block.stop - block.start <= most for block in blocks)


@pytest.mark.parametrize(
    ("threads", "work", "lanes"),
    [(4, 0, 1), (4, 1 << 20, 1), (4, 3 << 20, 3), (4, 99 << 20, 4), (1, 99 << 20, 1), (500, 1 << 40, 64)],
)
def test_lanes_are_as_many_as_the_work_is_worth(threads, work, lanes):
    assert lane_count(context(threads=threads), work) == lanes


def test_lanes_run_side_by_side():
    """Each waits for the others: in one thread they would wait for ever."""
    meeting, seen = threading.Barrier(3, timeout=60), []

    def lane() -> None:
        meeting.wait()
        seen.append(threading.get_ident())

    together([lane] * 3)()
    assert len(set(seen)) == 3


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_the_error_of_any_lane_is_raised_once_all_have_ended(failing):
    ended = []

    def lane(i: int) -> None:
        ended.append(i)
        if i == failing:
            raise ValueError(f"lane {i}")

    lanes = [lambda i=i: lane(i) for i in range(3)]
    with pytest.raises(ValueError, match=f"lane {failing}"):
        together(lanes)()
    assert sorted(ended) == [0, 1, 2]


def test_no_lanes_do_nothing_and_one_is_called_as_it_is():
    together([])()
    alone = threading.get_ident
    assert together([alone]) is alone
