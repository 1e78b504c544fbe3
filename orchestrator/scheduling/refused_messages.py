"""Handles messages that the database, or the rules of a cell's states, do not accept."""

import logging
from dataclasses import dataclass, field
from typing import Final

from agent.wire.bounded import clean
from agent.wire.logs import RareLog
from agent.wire.messages import JobResult
from orchestrator.dispatch.base import DispatchEvent, MessageReceived, UnusableResult

_WHY_CHARACTERS: Final = 200
"""Characters of an error that go into a result and into the log: its first line, without its parameters."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class RefusedMessages:
    """Logs refused messages at a bounded rate, and ends the attempts whose results are among them."""

    _aside: RareLog = field(default_factory=lambda: RareLog(log, "messages that cannot be applied"))

    def substitute(self, event: DispatchEvent, error: Exception) -> UnusableResult | None:
        """Return what ends the attempt of a result that was refused; None for any other message."""
        why = reason_of(error)
        if isinstance(event, MessageReceived) and isinstance(event.message, JobResult):
            result = event.message
            # Once per attempt: the receipt that follows ends the agent's repetitions.
            log.error("the result of attempt %s is not stored, the attempt fails: %s", result.attempt_id, why)
            return UnusableResult(event.agent_id, result.attempt_id, result.epoch, why)
        self._aside.warning(f"a message is left aside: {_named(event)}: {why}")
        return None


def reason_of(error: Exception) -> str:
    """Return the driver's own words, or the first line of any other error, in at most 200 characters."""
    # SQLAlchemy wraps the driver's error, and adds statement and parameters to its text.
    cause = getattr(error, "orig", None) or error
    lines = str(cause).strip().splitlines() or ["no reason given"]
    return clean(f"{type(cause).__name__}: {lines[0]}")[:_WHY_CHARACTERS]


def _named(event: DispatchEvent) -> str:
    if isinstance(event, MessageReceived):
        attempt_id = getattr(event.message, "attempt_id", "")
        return " ".join(filter(None, ["a", event.message.type, "of agent", event.agent_id, attempt_id]))
    return type(event).__name__
