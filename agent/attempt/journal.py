"""What this agent has taken on and not yet handed over, in one SQLite file that survives kill -9.

An attempt is `open` from its acceptance, `spooled` once its result is known, `delivered` once the
orchestrator has it. A result leaves the journal only on its receipt.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from agent.wire.messages import JobResult, JobSpec

_KEEP_DELIVERED = 10_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS attempt (
    attempt_id TEXT PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('open', 'spooled', 'delivered')),
    job TEXT NOT NULL,
    result TEXT
)
"""
_EPOCHS = """
CREATE TABLE IF NOT EXISTS epoch (device_id TEXT PRIMARY KEY, epoch INTEGER NOT NULL)
"""


class Journal:
    """Every method is one committed transaction when it returns."""

    def __init__(self, path: Path) -> None:
        """Open or create. Raises `sqlite3.Error`."""
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(_SCHEMA)
        self._db.execute(_EPOCHS)
        self._db.execute(
            "DELETE FROM attempt WHERE state = 'delivered' AND rowid <= (SELECT max(rowid) - ? FROM attempt)",
            (_KEEP_DELIVERED,),
        )

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def state_of(self, attempt_id: str) -> str | None:
        """`open`, `spooled`, `delivered`, or None for an attempt never seen."""
        row = self._db.execute("SELECT state FROM attempt WHERE attempt_id = ?", (attempt_id,)).fetchone()
        return None if row is None else str(row[0])

    def accept(self, job: JobSpec) -> None:
        """Take an attempt on. Raises `sqlite3.IntegrityError` for one already known."""
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(
                "INSERT INTO attempt (attempt_id, state, job) VALUES (?, 'open', ?)",
                (job.attempt_id, job.model_dump_json()),
            )
            self._db.execute(
                "INSERT INTO epoch VALUES (?, ?) "
                "ON CONFLICT (device_id) DO UPDATE SET epoch = excluded.epoch",
                (job.device_id, job.epoch),
            )

    def epochs(self) -> dict[str, int]:
        """The newest epoch of each device, by the jobs taken on."""
        return dict(self._db.execute("SELECT device_id, epoch FROM epoch"))

    def open_jobs(self) -> list[JobSpec]:
        """Attempts without a result, oldest first."""
        rows = self._db.execute("SELECT job FROM attempt WHERE state = 'open' ORDER BY rowid")
        return [JobSpec.model_validate_json(row[0]) for row in rows]

    def spool(self, result: JobResult) -> None:
        """Keep a result until its receipt; the attempt is no longer open."""
        self._db.execute(
            "UPDATE attempt SET state = 'spooled', result = ? WHERE attempt_id = ? AND state = 'open'",
            (result.model_dump_json(), result.attempt_id),
        )

    def spooled(self) -> list[JobResult]:
        """Results without a receipt, oldest first."""
        rows = self._db.execute("SELECT result FROM attempt WHERE state = 'spooled' ORDER BY rowid")
        return [JobResult.model_validate_json(row[0]) for row in rows]

    def delivered(self, attempt_id: str) -> None:
        """The receipt is here: drop the result, remember the attempt."""
        self._db.execute(
            "UPDATE attempt SET state = 'delivered', result = NULL "
            "WHERE attempt_id = ? AND state = 'spooled'",
            (attempt_id,),
        )
