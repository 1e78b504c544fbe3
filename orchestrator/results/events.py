"""Defines the events of cells and attempts."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from orchestrator.results.records import CellRecord

EventKind: TypeAlias = Literal[
    "reused",  # a cell took an older result over
    "dispatched",  # a cell was given to a device
    "started",  # its runner starts
    "phase",  # the runner's present phase, which is in `text`
    "retry",  # an attempt failed, or a user asked for another: the cell waits for it
    "refinement",  # the cell waits for blocks that are added to its result
    "interrupted",  # an attempt was stopped; the cell waits
    "finished",  # the cell has its terminal state
    "quarantined",  # its device gets no more cells until a health check passes
    "late",  # a result arrived too late and is not counted
]


@dataclass(frozen=True, slots=True)
class FarmEvent:
    """One step of a campaign.

    `cell` is the cell's present record. `done` of `total` cells have ended; `eta_s` estimates the rest
    in seconds, None before anything is known.
    """

    kind: EventKind
    cell: CellRecord
    text: str
    done: int
    total: int
    eta_s: float | None


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
