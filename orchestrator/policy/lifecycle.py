"""The states of cells and attempts, a table of legal moves for each, and what their reasons mean. Pure.

    cell      queued -> dispatched -> running -> done | failed | unsupported | cancelled
    attempt             dispatched -> running -> done | failed | unsupported | cancelled

A cell goes back to `queued` while another attempt may help; its terminal state is written once. One that
a user has measured again keeps its result until a new one replaces it, and goes back to `done` without one.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from agent.wire.messages import Reason, ReasonCode


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
    # A waiting cell may take a result over, get a late one, be cancelled, or lose its last device.
    CellState.QUEUED: frozenset({CellState.DISPATCHED}) | ENDED,
    CellState.DISPATCHED: frozenset({CellState.RUNNING, CellState.QUEUED}) | ENDED,
    CellState.RUNNING: frozenset({CellState.QUEUED}) | ENDED,
    **dict.fromkeys(ENDED, frozenset[CellState]()),
}

_ATTEMPT_ENDS = frozenset(
    {AttemptState.DONE, AttemptState.FAILED, AttemptState.UNSUPPORTED, AttemptState.CANCELLED}
)
ATTEMPT_MOVES: Final[Mapping[AttemptState, frozenset[AttemptState]]] = {
    # The message of its start may be lost, or its agent may refuse the job.
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


def cancelled_reason() -> Reason:
    """Return the reason of a cell that a user cancelled."""
    return Reason(code=ReasonCode.CANCELLED, text="by the user")
