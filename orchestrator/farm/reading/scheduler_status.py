"""Tells whether a scheduler works: by its last heartbeat in a lab, by its lock on one machine."""

from __future__ import annotations

from datetime import datetime

from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.db.campaigns.scheduler_state import NO_BROKER, STOPPED, SchedulerState
from orchestrator.scheduling.lock import lock_holder


def why_unscheduled(home: FarmHome, lab: LabConfig, state: SchedulerState | None, now: datetime) -> str:
    """Why no scheduler gives cells to devices now; empty where one does. `state`: a lab's record."""
    if not lab.is_lab:
        holder = lock_holder(home.scheduler_lock)
        return "" if holder is not None else "no scheduler is running; `farm submit` schedules while it waits"
    if state is None:
        return "no scheduler has run yet; start one: farm serve"
    if state.broker == STOPPED:
        return f"the scheduler on {state.host} was stopped; start it: farm serve"
    silence_s = (now - state.beat_at).total_seconds()
    if silence_s > lab.times.suspect_s:
        return f"the scheduler on {state.host}: last heartbeat {silence_s:.0f} s ago; start it: farm serve"
    return ""


def broker_state(lab: LabConfig, state: SchedulerState | None) -> str:
    """Return the state of the broker as the scheduler has recorded it."""
    if not lab.is_lab:
        return NO_BROKER
    if state is None:
        return "unknown: no scheduler has run yet"
    if state.broker == STOPPED:
        return "unknown: no scheduler is running"
    return f"{state.broker}: {state.broker_text}" if state.broker_text else state.broker
