"""The pure life of an attempt: every way it can end."""

from __future__ import annotations

import signal

import pytest

from agent.attempt.lifecycle import (
    CANCEL_GRACE_S,
    CONCLUDE_S,
    LEASE_PATIENCE_S,
    Attempt,
    CancelAsked,
    Conclude,
    Kill,
    LeaseGranted,
    Phase,
    Report,
    ReportResultFile,
    RunnerExited,
    ShutdownAsked,
    StartRunner,
    Terminate,
    Tick,
    step,
)
from agent.wire.messages import ReasonCode, Status

FRESH = Attempt(soft_limit_s=100, hard_limit_s=110, accepted_s=0.0)
CRASHED = RunnerExited(-signal.SIGSEGV, has_result=False, log="")
FINISHED = RunnerExited(0, has_result=True, log="")


def after(*events):
    """State and all actions after a series of events."""
    state, done = FRESH, []
    for event in events:
        state, actions = step(state, event)
        done += actions
    return state, done


def ending(*events) -> Report:
    state, actions = after(*events)
    assert state.phase is Phase.ENDED
    assert isinstance(actions[-1], Report)
    return actions[-1]


def test_leased_attempt_starts_and_its_result_counts():
    state, actions = after(Tick(1), LeaseGranted(2), Tick(50), FINISHED)
    assert state.phase is Phase.ENDED
    assert actions == [StartRunner(), ReportResultFile()]


def test_soft_limit_terminates_and_hard_limit_kills_until_it_is_gone():
    state, actions = after(LeaseGranted(10), Tick(109.9), Tick(110), Tick(119.9), Tick(120), Tick(121))
    assert state.phase is Phase.STOPPING
    assert actions == [StartRunner(), Terminate(), Kill(), Kill()]
    report = ending(LeaseGranted(10), Tick(110), RunnerExited(-signal.SIGTERM, has_result=False, log=""))
    assert (report.status, report.reason.code) == (Status.FAILED, ReasonCode.TIMEOUT)


@pytest.mark.parametrize("moment", [(), (LeaseGranted(1),), (LeaseGranted(1), Tick(101))], ids=str)
def test_cancel_at_any_moment_ends_cancelled(moment):
    exited = (RunnerExited(0, has_result=False, log=""),) if moment else ()
    report = ending(*moment, CancelAsked(101), *exited)
    assert (report.status, report.reason.code) == (Status.CANCELLED, ReasonCode.CANCELLED)


def test_cancelled_runner_that_does_not_end_is_killed_after_its_grace():
    _, actions = after(
        LeaseGranted(0), CancelAsked(5), Tick(5 + CANCEL_GRACE_S - 0.1), Tick(5 + CANCEL_GRACE_S)
    )
    assert actions == [StartRunner(), Conclude(), Kill()]


def test_a_runner_that_judges_what_it_has_finished_gets_more_time_and_not_for_ever():
    due_s = 5 + CANCEL_GRACE_S + CONCLUDE_S
    _, actions = after(LeaseGranted(0), CancelAsked(5), Tick(due_s - 0.1, concludes=True))
    assert actions == [StartRunner(), Conclude()]
    _, actions = after(LeaseGranted(0), CancelAsked(5), Tick(due_s, concludes=True))
    assert actions == [StartRunner(), Conclude(), Kill()]


def test_shutdown_reports_interrupted_with_its_reason():
    report = ending(LeaseGranted(0), ShutdownAsked(5, "the farm was stopped"), CRASHED)
    assert (report.status, report.reason.code) == (Status.FAILED, ReasonCode.INTERRUPTED)
    assert report.reason.text == "the farm was stopped"


@pytest.mark.parametrize("stop", [ShutdownAsked(5, "stop"), CancelAsked(5)], ids=["stop", "cancel"])
def test_result_that_was_complete_when_the_attempt_was_ended_counts(stop):
    _, actions = after(LeaseGranted(0), stop, FINISHED)
    assert actions[-1] == ReportResultFile()


def test_waiting_for_ever_is_not_an_option():
    report = ending(Tick(LEASE_PATIENCE_S - 1), Tick(LEASE_PATIENCE_S))
    assert (report.status, report.reason.code) == (Status.FAILED, ReasonCode.DEVICE_LOST)


@pytest.mark.parametrize(
    ("returncode", "log", "code", "said"),
    [
        (-signal.SIGSEGV, "", ReasonCode.CRASH, "SIGSEGV"),
        (
            -signal.SIGABRT,
            "terminate called after throwing 'std::bad_alloc'",
            ReasonCode.OUT_OF_MEMORY,
            "SIGABRT",
        ),
        (-signal.SIGKILL, "", ReasonCode.RUNNER_KILLED, "which the farm did not send"),
        (1, "Traceback ...\nMemoryError", ReasonCode.OUT_OF_MEMORY, "exit code 1"),
        (
            3,
            "first\nValueError: boom\n\n",
            ReasonCode.RUNNER_ERROR,
            "ValueError: boom (the runner, exit code 3)",
        ),
        (0, "", ReasonCode.RUNNER_ERROR, "ended without a result"),
    ],
)
def test_exit_without_a_result_is_explained(returncode, log, code, said):
    report = ending(LeaseGranted(0), RunnerExited(returncode, has_result=False, log=log))
    assert report.status is Status.FAILED
    assert report.reason.code is code
    assert said in report.reason.text


def test_events_after_the_end_change_nothing():
    state, _ = after(LeaseGranted(0), FINISHED)
    for event in (Tick(1000), CancelAsked(1000), CRASHED, ShutdownAsked(1, ""), LeaseGranted(3)):
        assert step(state, event) == (state, ())


def test_limits_count_from_the_start_of_the_runner_and_patience_from_the_acceptance():
    begun = Attempt(soft_limit_s=100, hard_limit_s=110, accepted_s=1000.0)
    running, _ = step(begun, LeaseGranted(2000))
    assert step(running, Tick(2099.9)) == (running, ())
    assert step(running, Tick(2100))[1] == (Terminate(),)
    waited = 1000.0 + LEASE_PATIENCE_S
    assert step(begun, Tick(waited - 0.1)) == (begun, ())
    assert step(begun, Tick(waited))[0].phase is Phase.ENDED


def test_a_cancel_shortens_the_end_of_an_attempt_that_is_stopping_already():
    events = (LeaseGranted(0), Tick(100), CancelAsked(101))
    _, early = after(*events, Tick(101 + CANCEL_GRACE_S - 0.1))
    _, due = after(*events, Tick(101 + CANCEL_GRACE_S))
    assert (early[-1], due[-1]) == (Terminate(), Kill())
    report = ending(*events, RunnerExited(-signal.SIGKILL, has_result=False, log=""))
    assert report.reason.code is ReasonCode.CANCELLED


def test_a_shutdown_shortens_the_end_and_leaves_the_reason():
    report = ending(LeaseGranted(0), Tick(100), ShutdownAsked(101, "stop"), CRASHED)
    assert report.reason.code is ReasonCode.TIMEOUT
