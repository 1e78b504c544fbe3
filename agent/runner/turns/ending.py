"""Ends an arm before its time, and counts the time of an arm."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from agent.attempt.files import LEASE_VARIABLE, Failure
from agent.wire.messages import ReasonCode


class FailedError(Exception):
    """A process of the arm ended it; the failure says how, `environment` what it ran in if it said so."""

    def __init__(self, failure: Failure, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(failure.reason.text)
        self.failure = failure
        self.environment = dict(environment or {})


class CancelledError(Exception):
    """The arm was cancelled: it takes no further step, and ends with the blocks that it has finished."""


@dataclass(slots=True)
class Clock:
    """The time of an arm's own turns. `limit_s`: how long they may take together (None: the agent ends the
    runner); `used_s`: how long they took.
    """

    limit_s: float | None = None
    used_s: float = 0.0

    @property
    def left_s(self) -> float | None:
        """The seconds that are left; None without a limit."""
        return None if self.limit_s is None else max(0.0, self.limit_s - self.used_s)

    def timeout(self) -> Failure:
        """Return the failure of an arm whose time is over."""
        text = f"not finished after {self.limit_s:g} s; measure less, or raise the attempt's time limit"
        return Failure.of(ReasonCode.TIMEOUT, text)


def lease_descriptors() -> tuple[int, ...]:
    """Return the lease's descriptors: while a process has them open, the kernel keeps the lock."""
    listed = os.environ.get(LEASE_VARIABLE)
    return () if listed is None else tuple(map(int, listed.split(",")))
