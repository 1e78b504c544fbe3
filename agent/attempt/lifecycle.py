"""The life of one attempt on this agent: (state, event) -> (state, actions). Pure; the daemon acts.

waiting --LeaseGranted--> running --RunnerExited--------------------------> ended
   |                         |--soft limit | cancel | shutdown--> stopping --RunnerExited--> ended
   '-----cancel | shutdown | patience over---------------------------------> ended
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from agent.processes.exit_reason import exit_reason
from agent.wire.messages import Reason, ReasonCode, Status

CANCEL_GRACE_S = 2.0
"""From SIGTERM to SIGKILL where a person waits."""

LEASE_PATIENCE_S = 3600.0
"""How long an attempt waits for a device that another attempt (of any farm on this host) uses."""


class Phase(StrEnum):
    """Where an attempt stands."""

    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Attempt:
    """State of one attempt. Times in seconds of one monotonic clock."""

    soft_limit_s: float
    hard_limit_s: float
    accepted_s: float
    phase: Phase = Phase.WAITING
    started_s: float = 0.0
    kill_at_s: float = 0.0
    stopped_for: Reason | None = None


@dataclass(frozen=True, slots=True)
class LeaseGranted:
    """The exclusion group's lock is ours."""

    now_s: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""

    now_s: float


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """The orchestrator wants the attempt to end."""

    now_s: float


@dataclass(frozen=True, slots=True)
class ShutdownAsked:
    """The agent is to end, or its orchestrator is gone: `why` tells."""

    now_s: float
    why: str


@dataclass(frozen=True, slots=True)
class RunnerExited:
    """The runner is gone. `has_result`: it left a complete result file. `log`: the end of its output.

    `oom_killed`: the kernel killed for want of memory while it ran.
    """

    returncode: int
    has_result: bool
    log: str
    oom_killed: bool = False


Event: TypeAlias = LeaseGranted | Tick | CancelAsked | ShutdownAsked | RunnerExited


@dataclass(frozen=True, slots=True)
class StartRunner:
    """Tell the orchestrator and exec the runner."""


@dataclass(frozen=True, slots=True)
class Terminate:
    """SIGTERM to the runner's session."""


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL to every process of the attempt."""


@dataclass(frozen=True, slots=True)
class ReportResultFile:
    """The runner's own result is the attempt's result."""


@dataclass(frozen=True, slots=True)
class Report:
    """The attempt ended without a result of the runner."""

    status: Status
    reason: Reason


Action: TypeAlias = StartRunner | Terminate | Kill | ReportResultFile | Report


def step(attempt: Attempt, event: Event) -> tuple[Attempt, tuple[Action, ...]]:
    """One transition. An event that means nothing in this phase changes nothing."""
    match attempt.phase, event:
        case Phase.WAITING, LeaseGranted(now_s):
            return replace(attempt, phase=Phase.RUNNING, started_s=now_s), (StartRunner(),)
        case Phase.WAITING, Tick(now_s):
            return _wait(attempt, now_s)
        case Phase.WAITING, CancelAsked() | ShutdownAsked():
            return _end(attempt, _stop_reason(event))
        case Phase.RUNNING, Tick(now_s) if now_s - attempt.started_s >= attempt.soft_limit_s:
            kill_at = attempt.started_s + max(attempt.hard_limit_s, attempt.soft_limit_s)
            return _stop(attempt, kill_at, _timeout(attempt))
        case Phase.RUNNING, CancelAsked(now_s) | ShutdownAsked(now_s):
            return _stop(attempt, now_s + CANCEL_GRACE_S, _stop_reason(event))
        case Phase.STOPPING, CancelAsked(now_s) | ShutdownAsked(now_s):
            return _hurry(attempt, event, now_s), ()
        case Phase.STOPPING, Tick(now_s) if now_s >= attempt.kill_at_s:
            return attempt, (Kill(),)
        case ((Phase.RUNNING | Phase.STOPPING), RunnerExited()):
            return _exited(attempt, event)
    return attempt, ()


def _wait(attempt: Attempt, now_s: float) -> tuple[Attempt, tuple[Action, ...]]:
    if now_s - attempt.accepted_s < LEASE_PATIENCE_S:
        return attempt, ()
    text = f"the device was in use by other attempts on this host for {LEASE_PATIENCE_S:.0f} s"
    return _end(attempt, Reason(code=ReasonCode.DEVICE_LOST, text=text))


def _stop(attempt: Attempt, kill_at_s: float, reason: Reason) -> tuple[Attempt, tuple[Action, ...]]:
    return replace(attempt, phase=Phase.STOPPING, kill_at_s=kill_at_s, stopped_for=reason), (Terminate(),)


def _hurry(attempt: Attempt, event: CancelAsked | ShutdownAsked, now_s: float) -> Attempt:
    """Someone waits for an attempt that is stopping already; a person's wish to cancel is its reason then."""
    cancelled = isinstance(event, CancelAsked)
    return replace(
        attempt,
        kill_at_s=min(attempt.kill_at_s, now_s + CANCEL_GRACE_S),
        stopped_for=_stop_reason(event) if cancelled else attempt.stopped_for,
    )


def _end(attempt: Attempt, reason: Reason) -> tuple[Attempt, tuple[Action, ...]]:
    status = Status.CANCELLED if reason.code is ReasonCode.CANCELLED else Status.FAILED
    return replace(attempt, phase=Phase.ENDED), (Report(status, reason),)


def _exited(attempt: Attempt, event: RunnerExited) -> tuple[Attempt, tuple[Action, ...]]:
    """A complete result counts, whatever stopped the runner; only a cancelled attempt stays cancelled."""
    cancelled = attempt.stopped_for is not None and attempt.stopped_for.code is ReasonCode.CANCELLED
    if event.has_result and not cancelled:
        return replace(attempt, phase=Phase.ENDED), (ReportResultFile(),)
    why = exit_reason(event.returncode, "the runner", event.log, oom_killed=event.oom_killed)
    return _end(attempt, attempt.stopped_for or why)


def _timeout(attempt: Attempt) -> Reason:
    text = f"not finished after {attempt.soft_limit_s:g} s; measure less, or raise the attempt's time limit"
    return Reason(code=ReasonCode.TIMEOUT, text=text)


def _stop_reason(event: CancelAsked | ShutdownAsked) -> Reason:
    if isinstance(event, ShutdownAsked):
        return Reason(code=ReasonCode.INTERRUPTED, text=event.why)
    return Reason(code=ReasonCode.CANCELLED, text="by the user")
