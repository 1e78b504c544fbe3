"""The events of a running campaign. The database keeps them, so that every terminal shows the same."""

from __future__ import annotations

from dataclasses import dataclass
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
