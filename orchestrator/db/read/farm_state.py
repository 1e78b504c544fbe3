"""Reads the state of the whole farm in a few queries, whose answers grow with its devices and never with its
cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlmodel import Session

from orchestrator.db.read import agents, device_states, open_cells, scheduler_state
from orchestrator.db.read.agents import AgentState
from orchestrator.db.read.device_states import DeviceState
from orchestrator.db.read.scheduler_state import SchedulerState


@dataclass(frozen=True, slots=True)
class FarmState:
    """The farm at `at`. `cells`: open cells by state, with `suspect` attempts and `paused` cells."""

    at: datetime
    cells: Mapping[str, int]
    agents: Sequence[AgentState]
    devices: Sequence[DeviceState]
    scheduler: SchedulerState | None


def read(session: Session, now: datetime, suspect_s: float) -> FarmState:
    """The state now; agents that were silent for `suspect_s` seconds get no work."""
    silent_before = now - timedelta(seconds=suspect_s)
    return FarmState(
        now,
        open_cells.counts(session, silent_before),
        agents.states(session),
        device_states.device_states(session, now, silent_before),
        scheduler_state.read(session),
    )
