"""Steers the farm: each verb writes to the database, and the scheduler, on any machine, acts on it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from orchestrator.config.clock import utc_now
from orchestrator.db import tables
from orchestrator.db.campaigns import campaigns, steering_requests
from orchestrator.db.cells import attempts, running_attempts
from orchestrator.db.devices import agents, states
from orchestrator.db.engine.sessions import Database
from orchestrator.db.engine.turn import Turn
from orchestrator.db.results import records
from orchestrator.db.scheduling import assignments
from orchestrator.errors import UsageError
from orchestrator.farm.local.quota import NO_LIMIT, Quota, account
from orchestrator.policy.reservation import length_of, reservation_of
from orchestrator.policy.rights import User, require_priority
from orchestrator.results.device_noise import DeviceNoise
from runtime.common.verdict import Grade

_LONGEST_COOL_DOWN_S = 3600.0
"""The longest cool-down in seconds. Chosen: a device that needs over an hour belongs in quarantine."""


_LONGEST_REASON: Final = 200
"""Characters of the reason of a reservation. Chosen: tables and sentences show it whole."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """A reservation that was made. `running`: attempts of others that still run where they exclude it."""

    device_id: str
    by: str
    until: datetime
    running: int


@dataclass(frozen=True, slots=True)
class Released:
    """A device that was released. `still`: what goes on to keep it; empty where it gets cells again."""

    device_id: str
    still: str


@dataclass(frozen=True, slots=True)
class Steering:
    """Changes the plans for campaigns, cells, devices and agents.

    A campaign is named by its id, the beginning of its id, or its name; a cell by the beginning of its id.
    `user`: who asks, over HTTP, and may change the campaigns that the same user submitted; an administrator
    and whoever has the database (None) may change all. `quota`: how many cells of the user may wait.
    """

    database: Database
    user: User | None = None
    quota: Quota = NO_LIMIT

    def cancel(self, ref: str) -> int:
        """Cancel a campaign or a cell.

        Waiting cells end at once, running ones within moments, `done` where they have finished a block;
        finished ones stay. Returns how many cells it concerns. Raises `UsageError`.
        """
        now = utc_now()
        with self.database.write() as turn:
            self._require_own(turn, ref)
            if records.campaign_rows(turn, ref):
                return campaigns.cancel_campaign(turn, records.find_campaign(turn, ref), now)
            cell = turn.cell(records.find_cell(turn, ref, "campaign or cell"))
            return campaigns.cancel_cells(turn, [cell], now)

    def pause(self, ref: str) -> int:
        """Start no more cells of a campaign. Returns how many cells wait. Raises `UsageError`."""
        with self.database.write() as turn:
            self._require_own(turn, ref)
            return steering_requests.pause(turn, ref, utc_now())

    def resume(self, ref: str) -> int:
        """Continue a paused campaign. Returns how many cells wait. Raises `UsageError`."""
        with self.database.write() as turn:
            self._require_own(turn, ref)
            return steering_requests.resume(turn, ref, utc_now())

    def prioritise(self, ref: str, priority: int) -> int:
        """Give a campaign or cell another priority. Returns how many open cells. Raises `UsageError`."""
        require_priority(priority, self.user)
        with self.database.write() as turn:
            self._require_own(turn, ref)
            return steering_requests.prioritise(turn, ref, priority)

    def retry(self, ref: str, *, failed_only: bool, grades: tuple[Grade, ...] = ()) -> int:
        """Put ended cells back into the queue, with `grades` those of such a result. Returns how many.

        Raises `UsageError`, and then puts none back: also where more cells of the user would wait than may.
        """
        with self.database.write() as turn:
            self._require_own(turn, ref)
            waiting = self.quota.waiting(turn)
            again = steering_requests.retry(turn, ref, utc_now(), failed_only=failed_only, grades=grades)
            self.quota.require(waiting, again, "this retry")  # raising takes the turn back
            return again

    def _require_own(self, turn: Turn, ref: str) -> None:
        """Raise `UsageError` where the user may not change this campaign, or the campaign of this cell."""
        if self._is_admin:
            return
        # As in `cancel`: what names a campaign is not taken for a cell's id.
        if records.campaign_rows(turn, ref):
            campaign = records.find_campaign(turn, ref)
        else:
            number = turn.cell(records.find_cell(turn, ref, "campaign or cell")).campaign_no
            campaign = turn.campaign(number)
        require_own(campaign, self.user)

    def quarantine(self, name: str, why: str, *, check: bool = False) -> str:
        """Take a device out; `check`: until a health check passes. Returns its id. Raises `UsageError`."""
        with self.database.write() as turn:
            return steering_requests.quarantine(turn, name, why, utc_now(), check=check)

    def reserve(self, name: str, seconds: float, reason: str = "") -> Reserved:
        """Keep a device, and what it excludes, for the campaigns of whoever asks; what runs there ends first.

        The reservation ends by itself. The holder may change its end. Raises `UsageError`.
        """
        length = length_of(seconds, administrator=self._is_admin)
        if len(reason) > _LONGEST_REASON or not (reason.isprintable() or not reason):
            raise UsageError(f"a reason has at most {_LONGEST_REASON} printable characters")
        now = utc_now()
        with self.database.write() as turn:
            device = steering_requests.find_device(turn, name)
            if not self._is_admin:
                states.require_share_of(turn, device, self._name, now + length, now)
            running = states.reserve(turn, device, self._name, now + length, reason, now)
            return Reserved(device.device_id, self._name, now + length, running)

    def release(self, name: str) -> Released:
        """Give a device cells again: end its quarantine, which takes an administrator, and the reservation.

        Of the two, somebody else's reservation stays where a quarantine was ended. Raises `UsageError` where
        the user may end nothing of what keeps the device.
        """
        now = utc_now()
        with self.database.write() as turn:
            device = steering_requests.find_device(turn, name)
            held = reservation_of(device, now)
            kept = device.quarantined_at is not None
            if self._is_admin:
                steering_requests.release(turn, device, now)
            if held is not None and (held.by == self._name or (self._is_admin and not kept)):
                states.release(device, now)
                held = None
            elif not self._is_admin and (held is not None or kept):
                what = f"reserved {held}" if held is not None else "in quarantine"
                raise UsageError(f"{device.device_id} is {what}; an administrator may release it")
            still = "" if held is None else f"still reserved {held}; to end that, release it once more"
            if kept and not self._is_admin:
                still = "still in quarantine, which an administrator ends"
            return Released(device.device_id, still)

    @property
    def _is_admin(self) -> bool:
        return self.user is None or self.user.is_admin

    @property
    def _name(self) -> str:
        """Who asks, as `Campaign.submitted_by` has it."""
        return account() if self.user is None else self.user.name

    def cool_down(self, name: str, seconds: float) -> str:
        """Let a device rest so long after each attempt. Returns its id. Raises `UsageError`."""
        if not 0 <= seconds <= _LONGEST_COOL_DOWN_S:
            raise UsageError(f"a cool-down is between 0 and {_LONGEST_COOL_DOWN_S:.0f} seconds")
        with self.database.write() as turn:
            return steering_requests.cool_down(turn, name, seconds)

    def record_noise(self, device_id: str, noise: DeviceNoise) -> None:
        """Store by how much equal things differ on a device."""
        with self.database.write() as turn:
            steering_requests.record_noise(turn, device_id, noise)

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
            # The state comes first: a class of devices counts as served only by agents that are active.
            _set_state(turn, name, state)
            if state == tables.AGENT_REMOVED:
                attempts.ask_to_stop(turn, running_attempts.of_agent(turn, name))
            return assignments.fail_unplaceable(turn, agents.devices_of(turn, [name]), why, utc_now())


def require_own(campaign: tables.Campaign, user: User | None) -> None:
    """Raise `UsageError` where the user may not change this campaign."""
    if user is not None and not user.is_admin and campaign.submitted_by != user.name:
        raise UsageError(
            f"campaign {campaign.campaign_id} ({campaign.name}) is not yours, {user.name}: "
            f"{campaign.submitted_by or 'an older release'} submitted it; an administrator may change it"
        )


def _set_state(turn: Turn, name: str, state: str) -> None:
    if not agents.set_state(turn, name, state):
        known = ", ".join(entry.agent_id for entry in agents.states(turn)) or "none"
        raise UsageError(f"no agent {name!r}; known: {known}")
