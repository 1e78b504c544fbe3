"""Steers the farm: each verb writes to the database, and the scheduler, on any machine, acts on it."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.config.clock import utc_now
from orchestrator.db import tables
from orchestrator.db.engine.sessions import Database
from orchestrator.db.engine.turn import Turn
from orchestrator.db.read import agents as known_agents
from orchestrator.db.read import records, running_attempts
from orchestrator.db.write import (
    agents,
    attempts,
    campaigns,
    steering_requests,
    unplaceable,
)
from orchestrator.errors import UsageError
from orchestrator.manifest.campaign import HIGHEST_PRIORITY

_LONGEST_COOL_DOWN_S = 3600.0
"""The longest cool-down in seconds. Chosen: a device that needs over an hour belongs in quarantine."""


@dataclass(frozen=True, slots=True)
class Steering:
    """Changes the plans for campaigns, cells, devices and agents.

    A campaign is named by its id, the beginning of its id, or its name; a cell by the beginning of its id.
    """

    database: Database

    def cancel(self, ref: str) -> int:
        """Cancel a campaign or a cell.

        Waiting cells end at once, running ones within moments; finished ones stay. Returns how many cells
        it concerns. Raises `UsageError`.
        """
        now = utc_now()
        with self.database.write() as turn:
            if records.campaign_rows(turn, ref):
                return campaigns.cancel_campaign(turn, records.find_campaign(turn, ref), now)
            cell = turn.cell(records.find_cell(turn, ref, "campaign or cell"))
            return campaigns.cancel_cells(turn, [cell], now)

    def pause(self, ref: str) -> int:
        """Start no more cells of a campaign. Returns how many cells wait. Raises `UsageError`."""
        with self.database.write() as turn:
            return steering_requests.pause(turn, ref, utc_now())

    def resume(self, ref: str) -> int:
        """Continue a paused campaign. Returns how many cells wait. Raises `UsageError`."""
        with self.database.write() as turn:
            return steering_requests.resume(turn, ref)

    def prioritise(self, ref: str, priority: int) -> int:
        """Give a campaign or cell another priority. Returns how many open cells. Raises `UsageError`."""
        if abs(priority) > HIGHEST_PRIORITY:
            raise UsageError(f"a priority is between -{HIGHEST_PRIORITY} and {HIGHEST_PRIORITY}")
        with self.database.write() as turn:
            return steering_requests.prioritise(turn, ref, priority)

    def retry(self, ref: str, *, failed_only: bool) -> int:
        """Put ended cells back into the queue. Returns how many. Raises `UsageError`."""
        with self.database.write() as turn:
            return steering_requests.retry(turn, ref, utc_now(), failed_only=failed_only)

    def quarantine(self, name: str, why: str, *, check: bool = False) -> str:
        """Take a device out; `check`: until a health check passes. Returns its id. Raises `UsageError`."""
        with self.database.write() as turn:
            return steering_requests.quarantine(turn, name, why, utc_now(), check=check)

    def release(self, name: str) -> str:
        """Give a device cells again. Returns its id. Raises `UsageError`."""
        with self.database.write() as turn:
            return steering_requests.release(turn, name, utc_now())

    def cool_down(self, name: str, seconds: float) -> str:
        """Let a device rest so long after each attempt. Returns its id. Raises `UsageError`."""
        if not 0 <= seconds <= _LONGEST_COOL_DOWN_S:
            raise UsageError(f"a cool-down is between 0 and {_LONGEST_COOL_DOWN_S:.0f} seconds")
        with self.database.write() as turn:
            return steering_requests.cool_down(turn, name, seconds)

    def drain_agent(self, name: str) -> int:
        """Give an agent no more work. Returns how many waiting cells could run nowhere else and have ended.

        Raises `UsageError` for a name that no agent has.
        """
        return self._retire(name, tables.AGENT_DRAINING, f"agent {name} is being drained")

    def remove_agent(self, name: str) -> int:
        """Remove an agent: its attempts are stopped, their cells queued again. As `drain_agent` otherwise."""
        return self._retire(name, tables.AGENT_REMOVED, f"agent {name} was removed")

    def resume_agent(self, name: str) -> int:
        """Let a draining or removed agent have work again; 0. Raises `UsageError`."""
        with self.database.write() as turn:
            _set_state(turn, name, tables.AGENT_ACTIVE)
        return 0

    def _retire(self, name: str, state: str, why: str) -> int:
        with self.database.write() as turn:
            _set_state(turn, name, state)
            if state == tables.AGENT_REMOVED:
                attempts.ask_to_stop(turn, running_attempts.of_agent(turn, name))
            return unplaceable.fail_unplaceable(turn, known_agents.devices_of(turn, [name]), why, utc_now())


def _set_state(turn: Turn, name: str, state: str) -> None:
    if not agents.set_state(turn, name, state):
        known = ", ".join(entry.agent_id for entry in known_agents.states(turn)) or "none"
        raise UsageError(f"no agent {name!r}; known: {known}")
