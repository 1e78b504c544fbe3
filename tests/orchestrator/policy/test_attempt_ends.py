from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.wire.messages import Reason, ReasonCode, Status
from orchestrator.manifest.schema import MOST_RETRIES, RETRIED_KINDS
from orchestrator.policy.attempt_ends import (
    MAX_ATTEMPTS,
    MAX_CRASHES,
    TRIED_AGAIN,
    USUAL_RETRIES,
    AttemptEnd,
    Known,
    RetryRule,
    attempt_end,
    device_verdict,
    moves_of,
    settle,
)
from orchestrator.policy.lifecycle import CRASHED, ENDED, RETRIED, AttemptState, CellState


def failed(code: ReasonCode) -> AttemptEnd:
    return AttemptEnd(AttemptState.FAILED, Reason(code=code, text=code.value))


INTERRUPTED_BY_US = AttemptEnd(AttemptState.CANCELLED, Reason(code=ReasonCode.INTERRUPTED, text="stopped"))


@given(st.lists(st.sampled_from(sorted(RETRIED)), min_size=1, max_size=MAX_ATTEMPTS))
def test_faults_of_the_farm_get_three_attempts(codes):
    settled = settle([failed(code) for code in codes], cancel_asked=False)
    expected = CellState.FAILED if len(codes) == MAX_ATTEMPTS else CellState.QUEUED
    assert settled.state is expected
    assert settled.reason.code is codes[-1]


@pytest.mark.parametrize("code", sorted(CRASHED))
def test_a_model_that_kills_its_runner_twice_is_not_tried_again(code):
    crash = failed(code)
    assert settle([crash], cancel_asked=False).state is CellState.QUEUED
    settled = settle([crash] * MAX_CRASHES, cancel_asked=False)
    assert (settled.state, settled.reason.code) == (CellState.FAILED, code)
    assert "2 attempts" in settled.reason.text


@pytest.mark.parametrize("code", sorted(set(ReasonCode) - RETRIED - CRASHED - {ReasonCode.CANCELLED}))
def test_errors_of_the_model_are_never_retried(code):
    assert settle([failed(code)], cancel_asked=False).state is CellState.FAILED


@given(st.integers(min_value=1, max_value=20))
def test_stopping_the_farm_costs_a_cell_no_attempt(times):
    assert settle([INTERRUPTED_BY_US] * times, cancel_asked=False).state is CellState.QUEUED
    history = [failed(ReasonCode.DEVICE_LOST)] * 2 + [INTERRUPTED_BY_US] * times
    assert settle(history, cancel_asked=False).state is CellState.QUEUED


def test_a_cancel_that_nobody_asked_for_is_no_further_attempt():
    end = attempt_end(Status.CANCELLED, None, stop_asked=False)
    assert settle([end], cancel_asked=False).state is CellState.FAILED
    assert settle([end], cancel_asked=True).state is CellState.CANCELLED


@pytest.mark.parametrize(("times", "state"), [(19, CellState.QUEUED), (20, CellState.DONE)])
def test_a_cell_goes_on_from_early_ends_a_bounded_number_of_times(times, state):
    end = AttemptEnd(AttemptState.DONE, Reason(code=ReasonCode.COMPLETED, text=""))
    assert settle([end] * times, cancel_asked=False, early=True).state is state


@given(st.sampled_from(sorted(ReasonCode)))
def test_a_failed_attempt_of_a_cancelled_cell_ends_it(code):
    assert settle([failed(code)], cancel_asked=True).state is CellState.CANCELLED


@pytest.mark.parametrize("state", [AttemptState.DONE, AttemptState.UNSUPPORTED])
def test_a_result_counts_although_cancel_was_asked(state):
    end = AttemptEnd(state, Reason(code=ReasonCode.COMPLETED, text=""))
    assert settle([end], cancel_asked=True).state.value == state.value


def test_a_whole_result_ends_its_cell():
    end = AttemptEnd(AttemptState.DONE, Reason(code=ReasonCode.COMPLETED, text=""))
    assert settle([end], cancel_asked=False).state is CellState.DONE


@pytest.mark.parametrize(
    ("cancel_asked", "state"),
    [(False, CellState.QUEUED), (True, CellState.DONE)],
    ids=["stopped", "cancelled"],
)
def test_a_result_that_ended_early_goes_on_unless_a_user_cancelled_it(cancel_asked, state):
    end = AttemptEnd(AttemptState.DONE, Reason(code=ReasonCode.COMPLETED, text=""))
    settled = settle([end], cancel_asked=cancel_asked, early=True)
    code = ReasonCode.INTERRUPTED if state is CellState.QUEUED else ReasonCode.COMPLETED
    assert (settled.state, settled.reason.code, settled.delay_s) == (state, code, 0.0)


@pytest.mark.parametrize("state", [AttemptState.FAILED, AttemptState.UNSUPPORTED, AttemptState.CANCELLED])
def test_only_what_was_measured_goes_on_for_having_ended_early(state):
    end = AttemptEnd(state, Reason(code=ReasonCode.RUNNER_ERROR, text=""))
    assert settle([end], cancel_asked=False, early=True) == settle([end], cancel_asked=False)


_ENDS = st.builds(
    AttemptEnd,
    st.sampled_from([AttemptState.FAILED, AttemptState.CANCELLED]),
    st.builds(Reason, code=st.sampled_from(ReasonCode), text=st.text(max_size=5)),
)


@given(st.lists(_ENDS, min_size=1, max_size=30), st.booleans())
def test_a_cell_never_has_more_than_three_failed_attempts(ends, cancel_asked):
    for count in range(1, len(ends) + 1):
        settled = settle(ends[:count], cancel_asked=cancel_asked)
        if settled.state is not CellState.QUEUED:
            assert settled.state in ENDED
            assert settled.reason.code
            break
        failures = sum(end.state is AttemptState.FAILED for end in ends[:count])
        assert failures < MAX_ATTEMPTS


# An agent that still fetches the model refuses the job as cancelled.
def test_an_interruption_is_nobodys_fault_only_where_the_farm_asked_for_it():
    reason = Reason(code=ReasonCode.INTERRUPTED, text="the farm was stopped")
    assert attempt_end(Status.FAILED, reason, stop_asked=True).state is AttemptState.CANCELLED
    assert attempt_end(Status.FAILED, reason, stop_asked=False).state is AttemptState.FAILED
    crash = Reason(code=ReasonCode.CRASH, text="SIGSEGV")
    assert attempt_end(Status.FAILED, crash, stop_asked=True).state is AttemptState.FAILED


@pytest.mark.parametrize("status", list(Status))
def test_an_end_always_has_a_reason(status):
    assert attempt_end(status, None, stop_asked=False).reason.text


def test_what_the_farm_stopped_is_interrupted_and_what_was_measured_meanwhile_counts():
    cancelled = attempt_end(Status.CANCELLED, None, stop_asked=True)
    assert (cancelled.state, cancelled.reason.code) == (AttemptState.CANCELLED, ReasonCode.INTERRUPTED)
    told = Reason(code=ReasonCode.INTERRUPTED, text="told")
    assert attempt_end(Status.DONE, told, stop_asked=True).state is AttemptState.DONE


def test_interruptions_do_not_count_among_the_failures():
    lost = failed(ReasonCode.AGENT_LOST)
    ends = [INTERRUPTED_BY_US, INTERRUPTED_BY_US, lost]
    assert (settle(ends, cancel_asked=False).state, settle(ends, cancel_asked=False).delay_s) == (
        "queued",
        0.0,
    )


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ([failed(ReasonCode.WRONG_OUTPUT)], "wrong_output"),
        ([failed(ReasonCode.CRASH)] * MAX_CRASHES, "crash (2 attempts)"),
    ],
)
def test_the_reason_says_how_often_it_was_tried_where_that_was_more_than_once(ends, text):
    assert settle(ends, cancel_asked=False).reason.text == text


@pytest.mark.parametrize(
    ("end", "worked"),
    [
        (AttemptEnd(AttemptState.DONE, Reason(code=ReasonCode.COMPLETED, text="")), True),
        (AttemptEnd(AttemptState.UNSUPPORTED, Reason(code=ReasonCode.UNSUPPORTED_OPERATOR, text="")), True),
        (failed(ReasonCode.WRONG_OUTPUT), True),
        (failed(ReasonCode.AGENT_LOST), False),
        (failed(ReasonCode.DEVICE_LOST), False),
        (failed(ReasonCode.CRASH), None),
        (INTERRUPTED_BY_US, None),
    ],
)
def test_what_an_end_shows_about_its_device(end, worked):
    assert device_verdict(end) is worked


def test_a_campaign_file_lowers_the_retries_and_never_raises_them():
    def tried(rule, *codes):
        return settle([failed(code) for code in codes], cancel_asked=False, retry=rule).state

    lost = ReasonCode.AGENT_LOST
    assert tried(RetryRule(times=0), lost) is CellState.FAILED
    assert tried(RetryRule(times=1), lost) is CellState.QUEUED
    assert tried(RetryRule(times=1), lost, lost) is CellState.FAILED
    assert tried(RetryRule(times=99), *[lost] * MAX_ATTEMPTS) is CellState.FAILED
    assert tried(RetryRule(kinds=frozenset({ReasonCode.CRASH})), lost) is CellState.FAILED
    assert tried(RetryRule(kinds=frozenset({ReasonCode.TIMEOUT})), ReasonCode.TIMEOUT) is CellState.FAILED
    assert (MOST_RETRIES, frozenset(RETRIED_KINDS)) == (MAX_ATTEMPTS - 1, TRIED_AGAIN)


DONE = AttemptEnd(AttemptState.DONE, Reason(code=ReasonCode.COMPLETED, text=""))
WAITING = Known(
    state=AttemptState.FAILED,
    code=ReasonCode.AGENT_LOST,
    cell=CellState.QUEUED,
    is_last=True,
    earlier=(),
    cancel_asked=False,
    retry=USUAL_RETRIES,
    shows=False,
)
RUNNING = replace(WAITING, state=AttemptState.RUNNING, code=None, cell=CellState.RUNNING)


def test_a_lost_attempt_gets_its_result_while_its_cell_waits_and_nothing_began_since():
    found = moves_of(WAITING, DONE)
    assert (found.cell.state, found.counts, found.withdraws) == (CellState.DONE, True, True)
    assert moves_of(replace(WAITING, is_last=False), DONE) is None
    assert moves_of(replace(WAITING, cell=CellState.FAILED), DONE) is None
    assert moves_of(replace(WAITING, code=ReasonCode.TIMEOUT), DONE) is None
    assert moves_of(WAITING, INTERRUPTED_BY_US) is None


@pytest.mark.parametrize("state", [AttemptState.DONE, AttemptState.UNSUPPORTED])
def test_an_attempt_that_has_ended_changes_nothing_more(state):
    assert moves_of(replace(RUNNING, state=state), DONE) is None


def test_an_end_that_tells_nothing_of_the_model_leaves_the_earlier_result():
    lost = replace(RUNNING, earlier=[failed(ReasonCode.AGENT_LOST)] * (MAX_ATTEMPTS - 1), shows=True)
    found = moves_of(lost, failed(ReasonCode.AGENT_LOST))
    assert (found.cell.state, found.counts, found.withdraws) == (CellState.FAILED, False, False)
    found = moves_of(replace(lost, shows=False), failed(ReasonCode.AGENT_LOST))
    assert (found.counts, found.withdraws, found.device_works) == (True, False, False)
    found = moves_of(lost, failed(ReasonCode.WRONG_OUTPUT))
    assert (found.counts, found.withdraws, found.device_works) == (True, True, True)


@pytest.mark.parametrize("shows", [False, True])
def test_a_failure_that_is_tried_again_counts_for_nothing(shows):
    found = moves_of(replace(RUNNING, shows=shows), failed(ReasonCode.CRASH))
    assert (found.cell.state, found.counts, found.withdraws) == (CellState.QUEUED, False, False)


def test_a_cell_keeps_the_rule_for_retries_of_its_campaign_file():
    assert RetryRule.read(None) == USUAL_RETRIES
    assert RetryRule.read({"times": 0}) == RetryRule(times=0)
    assert RetryRule.read({"kinds": ["crash"]}) == RetryRule(kinds=frozenset({ReasonCode.CRASH}))


def test_a_result_that_ended_early_is_shown_while_its_cell_waits():
    found = moves_of(RUNNING, DONE, early=True)
    assert (found.cell.state, found.counts, found.withdraws, found.goes_on) == ("queued", True, True, True)
    assert not moves_of(RUNNING, DONE).goes_on
