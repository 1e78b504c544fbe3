"""Stores jobs for the broker: each is in the outbox from the commit of its attempt until it is sent.

The attempt and its job are one commit, so the job of a scheduler that dies before sending is not lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from sqlalchemy import bindparam, delete

from agent.wire.messages import JobSpec
from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn

_outbox = tables.metadata.tables["outbox"]
_REMOVE: Final = delete(_outbox).where(_outbox.c.attempt_id.in_(bindparam("names", expanding=True)))


def add(turn: Turn, jobs: Iterable[tuple[str, JobSpec]], now: datetime) -> None:
    """Store that these jobs are to be sent: pairs of agent and job."""
    rows = [{"attempt_id": job.attempt_id, "agent_id": agent_id, "queued_at": now} for agent_id, job in jobs]
    turn.insert_at_end(tables.Outbox, rows)


def remove(turn: Turn, attempt_ids: Sequence[str]) -> None:
    """Store that the broker has the jobs of these attempts."""
    turn.at_end(("outbox", "remove"), partial(turn.write_only, _REMOVE, names=list(attempt_ids)))
