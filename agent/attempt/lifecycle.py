"""The life of one attempt on this agent: (state, event) -> (state, actions). Pure; `running` acts.

waiting --LeaseGranted--> running --RunnerExited--------------------------> ended
   |                         |--soft limit | cancel | shutdown--> stopping --RunnerExited--> ended
   '-----cancel | shutdown | patience over---------------------------------> ended
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from agent.processes.exit_reason import exit_reason
from agent.wire.messages import Reason, ReasonCode, Status

CANCEL_GRACE_S = 2.0
"""Seconds from SIGTERM to SIGKILL where a person waits for the end. Larger makes the cancel of a runner that
ignores SIGTERM slower; smaller gives drivers less time to close their devices."""

CONCLUDE_S = 10.0
"""Further seconds for a runner that has finished blocks to judge. Chosen: several times what judging takes.
Larger lets a runner that hangs in it hold up the end for longer; smaller could lose finished blocks."""

LEASE_PATIENCE_S = 3600.0
"""Seconds that an attempt waits for a device which another attempt, of any farm on this host, uses. One hour
is four times the default limit of an attempt; smaller gives up while others still take their turns."""


class Phase(StrEnum):
    """The phase of an attempt."""

    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Attempt:
    """The state of one attempt. Times are seconds of one monotonic clock."""

    soft_limit_s: float
    hard_limit_s: float
    accepted_s: float
    phase: Phase = Phase.WAITING
    started_s: float = 0.0
    kill_at_s: float = 0.0
    stopped_for: Reason | None = None


@dataclass(frozen=True, slots=True)
class LeaseGranted:
    """The attempt has the lock of its exclusion group."""

    now_s: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. `concludes`: the runner judges what it had finished when it was asked to end."""

    now_s: float
    concludes: bool = False


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """The orchestrator wants the attempt to end with what it has finished."""

    now_s: float


@dataclass(frozen=True, slots=True)
class ShutdownAsked:
    """The agent is to end, or its orchestrator is gone: `why` says which."""

    now_s: float
    why: str


@dataclass(frozen=True, slots=True)
class RunnerExited:
    """The runner has exited. `has_result`: it left a complete result file. `log`: the end of its output.

    `oom_killed`: the kernel killed a process, out of memory, while it ran.
    """

    returncode: int
    has_result: bool
    log: str
    oom_killed: bool = False


Event: TypeAlias = LeaseGranted | Tick | CancelAsked | ShutdownAsked | RunnerExited


@dataclass(frozen=True, slots=True)
class StartRunner:
    """Tell the orchestrator and start the runner."""


@dataclass(frozen=True, slots=True)
class Conclude:
    """Have the runner end what it is doing and sum up what it has finished: mark it, then `Terminate`."""


@dataclass(frozen=True, slots=True)
class Terminate:
    """Send SIGTERM to the runner's session."""


@dataclass(frozen=True, slots=True)
class Kill:
    """Send SIGKILL to every process of the attempt."""


@dataclass(frozen=True, slots=True)
class ReportResultFile:
    """The runner's own result is the attempt's result."""


@dataclass(frozen=True, slots=True)
class Report:
    """The attempt ended without a result from the runner."""

    status: Status
    reason: Reason


Action: TypeAlias = StartRunner | Conclude | Terminate | Kill | ReportResultFile | Report


def step(attempt: Attempt, event: Event) -> tuple[Attempt, tuple[Action, ...]]:
    """Return the next state and the actions to perform. An event that does not apply is ignored."""
    match attempt.phase, event:
        case Phase.WAITING, LeaseGranted(now_s):
            return replace(attempt, phase=Phase.RUNNING, started_s=now_s), (StartRunner(),)
        case Phase.WAITING, Tick(now_s):
            return _wait(attempt, now_s)
        case Phase.WAITING, CancelAsked() | ShutdownAsked():
            return _end(attempt, _stop_reason(event))
        case Phase.RUNNING, Tick(now_s) if now_s - attempt.started_s >= attempt.soft_limit_s:
            # A hard limit below the soft one must not lie in the past.
            kill_at = attempt.started_s + max(attempt.hard_limit_s, attempt.soft_limit_s)
            return _stop(attempt, kill_at, _timeout(attempt), Terminate())
        case Phase.RUNNING, CancelAsked(now_s) | ShutdownAsked(now_s):
            return _stop(attempt, now_s + CANCEL_GRACE_S, _stop_reason(event), Conclude())
        case Phase.STOPPING, CancelAsked(now_s) | ShutdownAsked(now_s):
            return _stop_sooner(attempt, event, now_s), ()
        # Again at every tick until the exit is seen. `concludes`, as a number, adds the time for judging.
        case Phase.STOPPING, Tick(now_s, concludes) if now_s >= attempt.kill_at_s + CONCLUDE_S * concludes:
            return attempt, (Kill(),)
        case ((Phase.RUNNING | Phase.STOPPING), RunnerExited()):
            return _exited(attempt, event)
    return attempt, ()


def _wait(attempt: Attempt, now_s: float) -> tuple[Attempt, tuple[Action, ...]]:
    if now_s - attempt.accepted_s < LEASE_PATIENCE_S:
        return attempt, ()
    text = f"the device was in use by other attempts on this host for {LEASE_PATIENCE_S:.0f} s"
    return _end(attempt, Reason(code=ReasonCode.DEVICE_LOST, text=text))


def _stop(
    attempt: Attempt, kill_at_s: float, reason: Reason, how: Conclude | Terminate
) -> tuple[Attempt, tuple[Action, ...]]:
    return replace(attempt, phase=Phase.STOPPING, kill_at_s=kill_at_s, stopped_for=reason), (how,)


def _stop_sooner(attempt: Attempt, event: CancelAsked | ShutdownAsked, now_s: float) -> Attempt:
    """Shorten the grace period of an attempt that is stopping already; a cancel becomes its reason."""
    cancelled = isinstance(event, CancelAsked)
    return replace(
        attempt,
        # Whoever asks may only shorten what a limit has granted.
        kill_at_s=min(attempt.kill_at_s, now_s + CANCEL_GRACE_S),
        stopped_for=_stop_reason(event) if cancelled else attempt.stopped_for,
    )


def _end(attempt: Attempt, reason: Reason) -> tuple[Attempt, tuple[Action, ...]]:
    status = Status.CANCELLED if reason.code is ReasonCode.CANCELLED else Status.FAILED
    return replace(attempt, phase=Phase.ENDED), (Report(status, reason),)


def _exited(attempt: Attempt, event: RunnerExited) -> tuple[Attempt, tuple[Action, ...]]:
    """End the attempt. A complete result counts, whatever stopped the runner: it is not lost."""
    if event.has_result:
        return replace(attempt, phase=Phase.ENDED), (ReportResultFile(),)
    why = exit_reason(event.returncode, "the runner", event.log, oom_killed=event.oom_killed)
    # What stopped the runner is the reason, not the signal by which it ended.
    return _end(attempt, attempt.stopped_for or why)


def _timeout(attempt: Attempt) -> Reason:
    text = f"not finished after {attempt.soft_limit_s:g} s; measure less, or raise the attempt's time limit"
    return Reason(code=ReasonCode.TIMEOUT, text=text)


def _stop_reason(event: CancelAsked | ShutdownAsked) -> Reason:
    if isinstance(event, ShutdownAsked):
        return Reason(code=ReasonCode.INTERRUPTED, text=event.why)
    return Reason(code=ReasonCode.CANCELLED, text="by the user")
