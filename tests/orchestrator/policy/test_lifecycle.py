from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.policy.lifecycle import (
    ATTEMPT_MOVES,
    CELL_MOVES,
    ENDED,
    AttemptState,
    CellState,
    IllegalMoveError,
    move_attempt,
    move_cell,
    reopen_cell,
)


@given(st.sampled_from(CellState), st.sampled_from(CellState))
def test_a_cell_moves_only_as_the_table_says(now, to):
    if to in CELL_MOVES[now]:
        assert move_cell(now, to) is to
    else:
        with pytest.raises(IllegalMoveError, match=f"from {now} to {to}"):
            move_cell(now, to)


def test_a_terminal_cell_never_moves_again():
    assert all(not CELL_MOVES[state] for state in ENDED)


def test_every_state_has_its_row_and_every_open_cell_can_end():
    assert set(CELL_MOVES) == set(CellState)
    assert set(ATTEMPT_MOVES) == set(AttemptState)
    assert all(CELL_MOVES[state] >= ENDED for state in set(CellState) - ENDED)


@given(st.sampled_from(AttemptState), st.sampled_from(AttemptState))
def test_an_attempt_moves_only_as_the_table_says(now, to):
    if to in ATTEMPT_MOVES[now]:
        assert move_attempt(now, to) is to
    else:
        with pytest.raises(IllegalMoveError):
            move_attempt(now, to)


@pytest.mark.parametrize("state", CellState)
def test_a_user_has_a_cell_tried_again_that_ended_without_a_measurement(state):
    if state in (CellState.FAILED, CellState.UNSUPPORTED, CellState.CANCELLED):
        assert reopen_cell(state) is CellState.QUEUED
    else:
        with pytest.raises(IllegalMoveError, match="cannot be tried again"):
            reopen_cell(state)
