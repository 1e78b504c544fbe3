"""Decides all that the end of an attempt changes: its state, its cell, whether its result counts. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent.wire.messages import Reason, ReasonCode, Status
from orchestrator.policy.lifecycle import (
    ATTEMPT_MOVES,
    CRASHED,
    DEVICE_FAULTS,
    ENDED,
    LIVE_ATTEMPT,
    LOST,
    RETRIED,
    AttemptState,
    CellState,
    cancelled_reason,
    replaces,
)

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

RETRY_DELAYS_S: Final = (0.0, 1.0)
"""How many seconds a cell waits after its first and its second failed attempt. Chosen: a device that was lost
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

    @classmethod
    def read(cls, stored: Mapping[str, Any] | None) -> "RetryRule":
        """Take it from the JSON of a cell; what that does not say is as usual."""
        times, kinds = (stored or {}).get("times"), (stored or {}).get("kinds")
        return cls(
            USUAL_RETRIES.times if times is None else times,
            USUAL_RETRIES.kinds if kinds is None else frozenset(map(ReasonCode, kinds)),
        )


USUAL_RETRIES: Final = RetryRule()
"""What holds where the file says nothing."""

MEASURED: Final = frozenset({AttemptState.DONE, AttemptState.UNSUPPORTED})
"""The ends of an attempt that tell something of its model, and so are worth having late."""


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


@dataclass(frozen=True, slots=True)
class Known:
    """The facts about an attempt from which the effects of its end follow, before that is stored.

    `state`, `code`: its own, `code` only where it was given up; `cell`: its cell's state. `is_last`: no other
    attempt has begun since, neither at its cell nor on its device. `earlier`: the ends of the attempts before
    it that count for its cell, oldest first. `shows`: whether the cell shows an earlier result.
    """

    state: AttemptState
    code: ReasonCode | None
    cell: CellState
    is_last: bool
    earlier: Sequence[AttemptEnd]
    cancel_asked: bool
    retry: RetryRule
    shows: bool


@dataclass(frozen=True, slots=True)
class Moves:
    """All that the end of an attempt changes.

    `withdraws`: an earlier result decides the cell no more. `counts`: the cell shows the attempt's result.
    `goes_on`: the result ended early, and the cell waits to continue it. `device_works`: what the end tells
    of the device; None: nothing.
    """

    attempt: AttemptEnd
    cell: Settled
    withdraws: bool
    counts: bool
    goes_on: bool
    device_works: bool | None


def moves_of(known: Known, end: AttemptEnd, *, early: bool = False) -> Moves | None:
    """Return what this end of an attempt changes; None where it comes too late to change anything.

    `early`: it was measured in part, because it was cancelled or interrupted.
    """
    if not _decides(known, end):
        return None
    settled = settle([*known.earlier, end], cancel_asked=known.cancel_asked, retry=known.retry, early=early)
    goes_on = settled.state is CellState.QUEUED and end.state is AttemptState.DONE
    withdraws = goes_on or (settled.state in ENDED and replaces(settled.state, settled.reason))
    # A cell ends as its attempt did, unless that tells nothing of it and its earlier result stays.
    is_its_end = settled.state.value == end.state.value and (withdraws or not known.shows)
    return Moves(end, settled, withdraws, goes_on or is_its_end, goes_on, device_verdict(end))


def _decides(known: Known, end: AttemptEnd) -> bool:
    """Whether an end may still be that of its attempt.

    An attempt that was given up as lost may get its real result, as long as its cell waits and no other
    attempt has begun since.
    """
    if end.state not in ATTEMPT_MOVES[known.state]:
        return False
    if known.state in LIVE_ATTEMPT:
        return True
    waits = known.cell is CellState.QUEUED
    return known.code in LOST and end.state in MEASURED and waits and known.is_last


def attempt_end(status: Status, reason: Reason | None, *, stop_asked: bool) -> AttemptEnd:
    """Return the end of an attempt as its result reports it.

    `stop_asked`: the orchestrator stopped it because it ended itself, gave up a campaign, or has forgotten
    what came of it in a restored database. Such an end is nobody's fault: `cancelled: interrupted`, which
    costs the cell none of its attempts.
    """
    state = AttemptState(status.value)
    told = reason or Reason(code=_DEFAULT_CODES[state], text=_DEFAULT_TEXTS[state])
    stopped = state is AttemptState.FAILED and told.code is ReasonCode.INTERRUPTED
    if stop_asked and (stopped or state is AttemptState.CANCELLED):
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
        # A runner that is being stopped may fail: the user's wish decides, and no failure is left behind.
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
    # At the n-th failure, n - 1 of the `times` further attempts are used up.
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
    # Wrong outputs were computed: the device has run the model to its end.
    worked = end.state in (AttemptState.DONE, AttemptState.UNSUPPORTED)
    return True if worked or end.reason.code is ReasonCode.WRONG_OUTPUT else None
