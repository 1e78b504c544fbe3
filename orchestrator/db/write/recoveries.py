"""Keeps the history of a device's recoveries, and puts it in quarantine behind each."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from sqlmodel import col, select

from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn
from orchestrator.db.read.lost_devices import LostDevice
from orchestrator.db.write import quarantine
from orchestrator.results.facts import DeviceRecovered, RecoveryOutcome

KEPT: Final = 20
"""Recoveries of a device that are kept. Chosen: more than a screen shows; each is some hundred bytes of a row
that is read often.
"""


def begin(turn: Turn, lost: LostDevice, now: datetime) -> None:
    """Note that the operator's command is about to start: whatever happens then, it was the hour's one."""
    device = turn.device(lost.device_id)
    entry = {"began_at": now.isoformat(), "ended_at": None, "loss": lost.loss, "outcome": None, "text": ""}
    device.recoveries = [*(device.recoveries or ()), entry][-KEPT:]


def end(turn: Turn, lost: LostDevice, outcome: RecoveryOutcome, text: str, now: datetime) -> None:
    """Note how it ended. What was lost gets work again once a health check passes there."""
    device = turn.device(lost.device_id)
    *before, entry = list(device.recoveries or ())
    device.recoveries = [*before, entry | {"ended_at": now.isoformat(), "outcome": outcome, "text": text}]
    turn.tell(DeviceRecovered(outcome))
    if lost.loss == "agent_silent":
        said = f"agent {lost.agent_id} was silent; its recovery {outcome}: {text}"
        for device_id in _working_devices(turn, lost.agent_id):
            quarantine.quarantine(turn, turn.device(device_id), said, now)


def _working_devices(turn: Turn, agent_id: str) -> list[str]:
    turn.flush()
    device = tables.Device
    working = (device.agent_id == agent_id, col(device.present), col(device.quarantined_at).is_(None))
    return sorted(turn.exec(select(device.device_id).where(*working)))
