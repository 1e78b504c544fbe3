"""Puts a backup in the place of the database, and tells first who gets in by it and who does not."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from orchestrator.config.home import FarmHome
from orchestrator.db.devices import credentials
from orchestrator.db.engine.copies import Copy, unpacked
from orchestrator.db.engine.sessions import Database, RefusedError
from orchestrator.db.migrate import HEAD, revisions
from orchestrator.db.scheduling import restored
from orchestrator.errors import FarmError, UnreachableError
from orchestrator.scheduling.lock import SchedulerLock, lock_holder
from orchestrator.trust import revocations

_GRANTS: Final = (
    ("credential", "key_id", "agent {agent_id}", "revoked_at"),
    ("user_token", "token_sha256", "user {name}", "revoked_at"),
    ("invitation", "token_sha256", "one-time token of agent {agent_id}", "used_at"),
)
"""Tables of a backup that let somebody in: the id, whose it is, and the column that is filled once it is
over.
"""


@dataclass(frozen=True, slots=True)
class Restoring:
    """A backup that is about to be restored, and what it changes: `user ana`, `agent rack-1`.

    `stay_out` were revoked since; `valid_again` are unknown to the present database, or it cannot be read;
    `shut_out` came since, and are not in the backup.
    """

    home: FarmHome
    copy: Copy
    revision: str
    is_read: bool
    stay_out: tuple[str, ...]
    valid_again: tuple[str, ...]
    shut_out: tuple[str, ...]

    def restore(self, now: datetime) -> Path | None:
        """Make the backup the database; return where the former file of SQLite is.

        Raises `FarmError`, and then the database is as it was.
        """
        database = self.copy.database
        # What the present database has revoked since the backup is noted beside the keys, before it is
        # replaced.
        if self.is_read:
            revocations.reconcile(database, self.home.keys, now)
        restored.prepare(self.copy, now)
        kept = database.backups / f"farm.db.replaced-{now:%Y%m%dT%H%M%S%f}"
        self.copy.put_in_place(kept)
        # Of an older revision, the farm does this once it has upgraded it.
        if self.revision == HEAD:
            revocations.reconcile(database, self.home.keys, now)
        return kept if kept.exists() else None


@contextmanager
def restoring(database: Database, home: FarmHome, backup: Path, now: datetime) -> Iterator[Restoring]:
    """Read a backup, and keep the farm from starting meanwhile.

    Raises `FarmError` where the farm runs, and where the file is no backup of this database that this release
    can use.
    """
    lock = SchedulerLock.acquire(home.scheduler_lock, None, database)
    if lock is None:
        holder = lock_holder(home.scheduler_lock)
        raise FarmError(f"the farm runs{f' (process {holder.pid})' if holder else ''}: stop it, then restore")
    with lock, unpacked(database, backup) as copy:
        try:
            (version,) = copy.rows("alembic_version")
        except (ValueError, FarmError) as error:
            raise FarmError(f"{backup} is no backup of a farm: it has no revision") from error
        revision = str(version["version_num"])
        if revision not in (known := revisions()):
            raise FarmError(
                f"{backup} has revision {revision}, and this version of the farm restores {min(known)} to "
                f"{HEAD}: see 'Upgrades' in docs/storage.md"
            )
        given, over = _given(copy, now), revocations.known(home.keys)
        present: dict[str, str] | None = None
        # Damaged, or without tables: what a backup is restored for.
        with suppress(UnreachableError, RefusedError), database.read() as session:
            over |= credentials.over(session, now)
            present = credentials.owners(session, now)
        valid = present or {}
        yield Restoring(
            home,
            copy,
            revision,
            present is not None,
            stay_out=_named(given, given.keys() & over),
            valid_again=_named(given, given.keys() - over - valid.keys()),
            shut_out=_named(valid, valid.keys() - given.keys()),
        )


def _given(copy: Copy, now: datetime) -> dict[str, str]:
    """Return whose what lets in by a backup is, by id."""
    return {
        str(row[key]): owner.format_map(row)
        for table, key, owner, ended in _GRANTS
        for row in copy.rows(table)
        if row[ended] is None and not _is_past(row["expires_at"], now)
    }


def _is_past(text: str | None, now: datetime) -> bool:
    if text is None:
        return False
    found = datetime.fromisoformat(text)
    # SQLite stores moments in UTC without saying so.
    return (found if found.tzinfo else found.replace(tzinfo=UTC)) <= now


def _named(owners: dict[str, str], ids: set[str]) -> tuple[str, ...]:
    return tuple(sorted({owners[name] for name in ids}))
