"""The states of cells and attempts: a table of legal moves for each, and the effects of an ended attempt.

    cell      queued -> dispatched -> running -> done | failed | unsupported | cancelled
    attempt             dispatched -> running -> done | failed | unsupported | cancelled

A cell goes back to `queued` while another attempt may help; its terminal state is written once. One that
a user has measured again keeps its result until a new one replaces it, and goes back to `done` without one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agent.wire.messages import Reason, ReasonCode, Status


class CellState(StrEnum):
    """The state of a cell."""

    QUEUED = "queued"
    DISPATCHED = "dispatched"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"
    CANCELLED = "cancelled"


class AttemptState(StrEnum):
    """The state of one attempt at a cell."""

    DISPATCHED = "dispatched"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"
    CANCELLED = "cancelled"


ENDED: Final = frozenset({CellState.DONE, CellState.FAILED, CellState.UNSUPPORTED, CellState.CANCELLED})
"""The terminal states of a cell."""

OPEN: Final = frozenset(CellState) - ENDED
"""The states of a cell that is still to be measured or is being measured."""

LIVE_ATTEMPT: Final = frozenset({AttemptState.DISPATCHED, AttemptState.RUNNING})
"""The states of an attempt under way: it holds its device."""

CELL_MOVES: Final[Mapping[CellState, frozenset[CellState]]] = {
    CellState.QUEUED: frozenset({CellState.DISPATCHED}) | ENDED,
    CellState.DISPATCHED: frozenset({CellState.RUNNING, CellState.QUEUED}) | ENDED,
    CellState.RUNNING: frozenset({CellState.QUEUED}) | ENDED,
    **dict.fromkeys(ENDED, frozenset[CellState]()),
}

_ATTEMPT_ENDS = frozenset(
    {AttemptState.DONE, AttemptState.FAILED, AttemptState.UNSUPPORTED, AttemptState.CANCELLED}
)
ATTEMPT_MOVES: Final[Mapping[AttemptState, frozenset[AttemptState]]] = {
    AttemptState.DISPATCHED: frozenset({AttemptState.RUNNING}) | _ATTEMPT_ENDS,
    AttemptState.RUNNING: _ATTEMPT_ENDS,
    AttemptState.FAILED: _ATTEMPT_ENDS - {AttemptState.FAILED},  # given up as lost before its result arrived
    AttemptState.DONE: frozenset(),
    AttemptState.UNSUPPORTED: frozenset(),
    AttemptState.CANCELLED: frozenset({AttemptState.DONE}),  # interrupted before its result arrived
}

LOST: Final = frozenset({ReasonCode.INTERRUPTED, ReasonCode.AGENT_LOST})
"""The orchestrator gave the attempt up without knowing the state of its runner: a result may still arrive."""

RETRIED: Final = LOST | {ReasonCode.DEVICE_LOST, ReasonCode.ARTIFACT}
"""Faults of the farm rather than of the model: another attempt may help. A timeout is none of them: another
attempt would take the whole time limit again.
"""

DEVICE_FAULTS: Final = frozenset({ReasonCode.AGENT_LOST, ReasonCode.DEVICE_LOST})
"""Faults of the device or its host. A model may end with any other failure on a device that works."""

MAX_DEVICE_FAULTS: Final = 3
"""How many different cells in a row a device fails before it goes to quarantine. Chosen: one or two may be
chance, or models that bring the driver down; more would cost a campaign more cells on a device that is
broken.
"""

CRASHED: Final = frozenset({ReasonCode.CRASH, ReasonCode.RUNNER_KILLED})
"""The runner died of a signal. Once that may be chance, twice it is taken for the model's fault."""

CURABLE: Final = frozenset({ReasonCode.NO_DEVICE, ReasonCode.DELEGATE_MISSING})
"""Reasons that installing or connecting something removes, though the environment's fields may stay the same.
"""

UNTOLD: Final = (
    RETRIED
    | CURABLE
    | {ReasonCode.CANCELLED, ReasonCode.TIMEOUT, ReasonCode.QUEUE_LIMIT, ReasonCode.CONDITIONS_CHANGED}
)
"""Reasons of the farm and its users, which tell nothing of a model that was measured before: a new
measurement that ends so leaves the earlier result. A timeout is one: the same was done in time before.
"""

MAX_ATTEMPTS: Final = 3
"""How many attempts at a cell may fail. Chosen: two chances beyond the first, for a fault of the farm that
hits the same cell twice; more would keep a device busy with what does not work.
"""

MAX_EARLY: Final = 20
"""How many attempts at a cell there may be for it to go on from one that ended early. Chosen: more often than
a farm is stopped while one cell runs; more would let a runner that always ends so keep a device for ever.
"""

MAX_CRASHES: Final = 2
"""How many of them may end with the runner's death by a signal. The first may be chance, such as memory that
another program took; the second is the model's.
"""

RETRY_DELAYS_S: Final = (0.0, 1.0, 5.0)
"""How many seconds a cell waits after its first, second, ... failed attempt. Chosen: a device that was lost
for a moment is back; longer waits would only delay the campaign, as other cells use the device meanwhile.
"""


TRIED_AGAIN: Final = RETRIED | CRASHED
"""Failures after which a cell is tried again where its campaign file says nothing else."""


@dataclass(frozen=True, slots=True)
class RetryRule:
    """A campaign file's rule for retries, within the farm's bounds. `times`: the most attempts that follow a
    failed one; `kinds`: the failures that are retried.
    """

    times: int = MAX_ATTEMPTS - 1
    kinds: frozenset[ReasonCode] = TRIED_AGAIN


USUAL_RETRIES: Final = RetryRule()
"""What holds where the file says nothing."""


class IllegalMoveError(Exception):
    """A change of state that the table does not allow: a bug, or a message that arrived too late."""


def move_cell(now: CellState, to: CellState) -> CellState:
    """Return `to` where the table allows the move. Raises `IllegalMoveError`."""
    if to not in CELL_MOVES[now]:
        raise IllegalMoveError(f"a cell cannot go from {now} to {to}")
    return to


def reopen_cell(now: CellState, *, measured: bool = False) -> CellState:
    """Return `queued` for a cell that a user wants tried again: the one way out of a terminal state.

    `measured`: also where it has a result, which stands until a new one replaces it. Raises
    `IllegalMoveError` for a cell that has not ended, and else for one that was measured.
    """
    if now not in (ENDED if measured else ENDED - {CellState.DONE}):
        raise IllegalMoveError(f"a cell that is {now} cannot be tried again")
    return CellState.QUEUED


def replaces(state: CellState, reason: Reason) -> bool:
    """Whether such an end of a new measurement replaces the result that the cell had before."""
    return state is CellState.DONE or (state is not CellState.CANCELLED and reason.code not in UNTOLD)


def move_attempt(now: AttemptState, to: AttemptState) -> AttemptState:
    """Return `to` where the table allows the move. Raises `IllegalMoveError`."""
    if to not in ATTEMPT_MOVES[now]:
        raise IllegalMoveError(f"an attempt cannot go from {now} to {to}")
    return to


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """The final state of an attempt, and its reason."""

    state: AttemptState
    reason: Reason


@dataclass(frozen=True, slots=True)
class Settled:
    """The next state of a cell: a terminal state, or `queued` again after `delay_s` seconds."""

    state: CellState
    reason: Reason
    delay_s: float = 0.0


def attempt_end(status: Status, reason: Reason | None, *, stop_asked: bool) -> AttemptEnd:
    """Return the end of an attempt as its result reports it.

    `stop_asked`: the orchestrator stopped it because it ended itself or gave up a campaign. Such an end is
    nobody's fault: `cancelled: interrupted`, which costs the cell none of its attempts.
    """
    state = AttemptState(status.value)
    told = reason or Reason(code=_DEFAULT_CODES[state], text=_DEFAULT_TEXTS[state])
    interrupted = state is AttemptState.FAILED and told.code is ReasonCode.INTERRUPTED
    if stop_asked and (interrupted or state is AttemptState.CANCELLED):
        return AttemptEnd(AttemptState.CANCELLED, Reason(code=ReasonCode.INTERRUPTED, text=told.text))
    return AttemptEnd(state, told)


_DEFAULT_CODES = {
    AttemptState.DONE: ReasonCode.COMPLETED,
    AttemptState.FAILED: ReasonCode.RUNNER_ERROR,
    AttemptState.UNSUPPORTED: ReasonCode.UNSUPPORTED_OPERATOR,
    AttemptState.CANCELLED: ReasonCode.CANCELLED,
}
_DEFAULT_TEXTS = {
    AttemptState.DONE: "measured",
    AttemptState.FAILED: "the agent gave no reason",
    AttemptState.UNSUPPORTED: "the agent gave no reason",
    AttemptState.CANCELLED: "by the user",
}


def settle(
    ends: Sequence[AttemptEnd], *, cancel_asked: bool, retry: RetryRule = USUAL_RETRIES, early: bool = False
) -> Settled:
    """Derive the next state of a cell from its attempts, oldest first. At least one must have ended.

    `early`: the last one was measured in part. It goes on, unless a user cancelled it.
    """
    last = ends[-1]
    match last.state:
        case AttemptState.DONE if early and not cancel_asked and len(ends) < MAX_EARLY:
            text = "it ended early; what it has finished is kept, and it goes on from there"
            return Settled(CellState.QUEUED, Reason(code=ReasonCode.INTERRUPTED, text=text))
        case AttemptState.DONE:
            return Settled(CellState.DONE, last.reason)
        case AttemptState.UNSUPPORTED:
            return Settled(CellState.UNSUPPORTED, last.reason)
        case AttemptState.CANCELLED | AttemptState.FAILED if cancel_asked:
            return Settled(CellState.CANCELLED, cancelled_reason())
        case AttemptState.CANCELLED if last.reason.code is ReasonCode.CANCELLED:
            text = "the agent says that it was cancelled, which nobody asked for"
            return Settled(CellState.FAILED, Reason(code=ReasonCode.RUNNER_ERROR, text=text))
        case AttemptState.CANCELLED:
            return Settled(CellState.QUEUED, last.reason)
    return _settle_failure(last.reason, [end for end in ends if end.state is AttemptState.FAILED], retry)


def _settle_failure(reason: Reason, failures: Sequence[AttemptEnd], retry: RetryRule) -> Settled:
    crashes = sum(end.reason.code in CRASHED for end in failures)
    again = reason.code in RETRIED or (reason.code in CRASHED and crashes < MAX_CRASHES)
    again = again and reason.code in retry.kinds and len(failures) <= retry.times
    if again and len(failures) < MAX_ATTEMPTS:
        return Settled(CellState.QUEUED, reason, RETRY_DELAYS_S[len(failures) - 1])
    if len(failures) > 1:
        return Settled(
            CellState.FAILED, Reason(code=reason.code, text=f"{reason.text} ({len(failures)} attempts)")
        )
    return Settled(CellState.FAILED, reason)


def device_verdict(end: AttemptEnd) -> bool | None:
    """Return True if an attempt's end shows that its device works, False that it fails, None if neither."""
    if end.reason.code in DEVICE_FAULTS:
        return False
    worked = end.state in (AttemptState.DONE, AttemptState.UNSUPPORTED)
    return True if worked or end.reason.code is ReasonCode.WRONG_OUTPUT else None


def cancelled_reason() -> Reason:
    """Return the reason of a cell that a user cancelled."""
    return Reason(code=ReasonCode.CANCELLED, text="by the user")
