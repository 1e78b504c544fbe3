"""The changes of a transaction, as values for counters, sent once the transaction is committed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class AttemptBegun:
    """A device was given a cell at `at`. `group`: what the attempt keeps busy; `ready_at`: since when nothing
    but a busy or unnoticed device could keep the cell from starting there.
    """

    group: str
    ready_at: datetime
    at: datetime


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt ended, or one that was given up as lost got its result after all. `reason`: a code."""

    group: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ResultStored:
    """A delivered result. `grade` of its figures and verdict on its `accuracy`, None where there is none."""

    grade: str | None
    accuracy: str | None


RecoveryOutcome: TypeAlias = Literal["succeeded", "failed", "timed_out"]
"""How the operator's command for a lost device ended. Whether the device works, its health check says."""


@dataclass(frozen=True, slots=True)
class DeviceRecovered:
    """The operator's command ran for a lost device."""

    outcome: RecoveryOutcome


Fact: TypeAlias = AttemptBegun | AttemptEnded | ResultStored | DeviceRecovered
