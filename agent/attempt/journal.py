"""Attempts that this agent has accepted and not yet delivered, in one SQLite file that survives kill -9.

An attempt is `open` from its acceptance, `spooled` once its result is known, and `delivered` once the
orchestrator has the result. A result leaves the journal only on its receipt.
"""

import sqlite3
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from agent.attempt.room import needing_room
from agent.wire.messages import JobResult, JobSpec

_KEEP_DELIVERED: Final = 10_000
"""Newest entries whose ids are kept, so that a repeated job does not run again. A job is repeated within
minutes; larger only makes the file grow, by the length of a job per entry."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS attempt (
    attempt_id TEXT PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('open', 'spooled', 'delivered')),
    job TEXT NOT NULL,
    result TEXT
)
"""
_EPOCHS: Final = """
CREATE TABLE IF NOT EXISTS epoch (device_id TEXT PRIMARY KEY, epoch INTEGER NOT NULL)
"""
_NAME: Final = "the agent's journal"


class Journal:
    """The journal of one agent. Each method's changes are committed when it returns.

    Methods raise `sqlite3.Error`; `sqlite3.DatabaseError` itself where the file is damaged. Those that write
    raise `NoRoomError` where the disk is full, and have then changed nothing.
    """

    def __init__(self, path: Path) -> None:
        """Open or create. Raises `sqlite3.Error`."""
        # Autocommit: each statement is a transaction of its own, unless `accept` begins one.
        self._db = sqlite3.connect(path, isolation_level=None)
        # FULL: a commit is on the disk when it returns, so an accepted attempt survives a power cut.
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(_SCHEMA)
        self._db.execute(_EPOCHS)
        self._db.execute(
            # Rowids grow with time. What is open or spooled stays, however old it is.
            "DELETE FROM attempt WHERE state = 'delivered' AND rowid <= (SELECT max(rowid) - ? FROM attempt)",
            (_KEEP_DELIVERED,),
        )

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def state_of(self, attempt_id: str) -> str | None:
        """Return `open`, `spooled`, `delivered`, or None for an attempt never seen."""
        row = self._db.execute("SELECT state FROM attempt WHERE attempt_id = ?", (attempt_id,)).fetchone()
        return None if row is None else str(row[0])

    @needing_room(_NAME)
    def accept(self, job: JobSpec) -> None:
        """Record the attempts of a job as accepted, all or none.

        Raises `sqlite3.IntegrityError` for one already known.
        """
        # `with` commits or rolls back; it begins nothing itself.
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            for own in job.attempts:
                self._db.execute(
                    "INSERT INTO attempt (attempt_id, state, job) VALUES (?, 'open', ?)",
                    (own.attempt_id, own.model_dump_json()),
                )
                self._db.execute(
                    # The new one is the greatest: `admission` refuses an epoch that the device has seen.
                    "INSERT INTO epoch VALUES (?, ?) "
                    "ON CONFLICT (device_id) DO UPDATE SET epoch = excluded.epoch",
                    (own.device_id, own.epoch),
                )

    def epochs(self) -> dict[str, int]:
        """Return the newest epoch of each device, by the accepted jobs."""
        return dict(self._db.execute("SELECT device_id, epoch FROM epoch"))

    def open_jobs(self) -> list[JobSpec]:
        """Return attempts without a result, oldest first."""
        rows = self._db.execute("SELECT job FROM attempt WHERE state = 'open' ORDER BY rowid")
        return [_entry(JobSpec, row[0]) for row in rows]

    @needing_room(_NAME)
    def spool(self, result: JobResult) -> None:
        """Store a result until its receipt; the attempt is no longer open."""
        self._db.execute(
            # The first result counts: one that is spooled or delivered already is not replaced.
            "UPDATE attempt SET state = 'spooled', result = ? WHERE attempt_id = ? AND state = 'open'",
            (result.model_dump_json(), result.attempt_id),
        )

    def spooled(self) -> list[JobResult]:
        """Return results without a receipt, oldest first."""
        rows = self._db.execute("SELECT result FROM attempt WHERE state = 'spooled' ORDER BY rowid")
        return [_entry(JobResult, row[0]) for row in rows]

    @needing_room(_NAME)
    def delivered(self, attempt_id: str) -> None:
        """Drop a result whose receipt has arrived; the attempt's id stays."""
        self._db.execute(
            # A receipt for an attempt that is still open is about no result of its own.
            "UPDATE attempt SET state = 'delivered', result = NULL "
            "WHERE attempt_id = ? AND state = 'spooled'",
            (attempt_id,),
        )


_Entry = TypeVar("_Entry", JobSpec, JobResult)


def _entry(form: type[_Entry], text: str | None) -> _Entry:
    try:
        return form.model_validate_json(text or "")
    except ValidationError as error:
        raise sqlite3.DatabaseError(f"an entry is no {form.__name__}") from error
