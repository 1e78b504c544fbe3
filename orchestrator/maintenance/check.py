"""Checks that the database is intact and that the store has every file it names; copies it to a new file."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agent.wire.messages import artifact_path
from agent.wire.private_folder import FILE_MODE
from orchestrator.db.campaigns import retention
from orchestrator.db.engine.sessions import Database
from orchestrator.db.migrate import HEAD, pending_changes, revision
from orchestrator.doctor.check import Check
from orchestrator.errors import FarmError
from orchestrator.sources.store import Store
from runtime.common.durable import replacing

_SHOWN_FAULTS: Final = 5
"""How many faults one line names at most. Chosen: that many fit into a few lines of a terminal."""


def check(database: Database, store: Store, *, deep: bool = False) -> list[Check]:
    """Whether the database is intact and the store has what it names; `deep`: every artifact is hashed."""
    checks = []
    for name, look in (("integrity", _integrity), ("tables", _tables), ("results", _results)):
        try:
            checks.append(look(database))
        except FarmError as error:
            checks.append(
                Check(
                    name, False, str(error), "try farm db backup: it fails where the database cannot be read"
                )
            )
    try:
        with database.read() as session:
            named = retention.references(session)
    except FarmError as error:
        return [*checks, Check("artifacts", False, str(error), "see the check before")]
    return [*checks, _artifacts(store, named, deep=deep)]


def _integrity(database: Database) -> Check:
    faults = database.faults()
    if faults:
        found = "; ".join(faults[:_SHOWN_FAULTS])
        return Check(
            "integrity", False, f"{database.name}: {found}", "restore a backup that `farm db backup` made"
        )
    return Check("integrity", True, database.name)


def _tables(database: Database) -> Check:
    found = revision(database)
    changes = pending_changes(database)
    if found != HEAD or changes:
        text = f"revision {found}, {len(changes)} differences from revision {HEAD}"
        return Check(
            "tables", False, text, "restore a backup, or report what changed the tables to the developers"
        )
    return Check("tables", True, f"revision {found}")


def _results(database: Database) -> Check:
    with database.read() as session:
        unshown = retention.unshown(session)
    if unshown:
        return Check("results", False, f"{unshown} cells show a result that is gone", "farm retry CAMPAIGN")
    return Check("results", True, "every cell's result is there")


def _artifacts(store: Store, named: Sequence[retention.Reference], *, deep: bool) -> Check:
    wrong = [
        f"{entry.what} {entry.sha256[:12]} {why}" for entry in named if (why := _fault(store, entry, deep))
    ]
    if wrong:
        text = f"{len(wrong)} of {len(named)}: {'; '.join(wrong[:_SHOWN_FAULTS])}"
        fix = (
            "submit the campaigns of these models again; samples that are gone stay gone; "
            "references: farm db references MODEL --forget"
        )
        return Check("artifacts", False, text, fix)
    return Check(
        "artifacts", True, f"{len(named)} files are there{', and every hash is right' if deep else ''}"
    )


def _fault(store: Store, entry: retention.Reference, deep: bool) -> str:
    found = store.find(entry.sha256)
    if found is None:
        return "is gone"
    if entry.size_bytes not in (None, found.size_bytes):
        return f"has {found.size_bytes} bytes, not {entry.size_bytes}"
    if deep:
        with artifact_path(store.root, entry.sha256).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != entry.sha256:
                return "is damaged"
    return ""


def backup(database: Database, target: Path) -> int:
    """Copy the database to a new file that only this user may read; returns its size in bytes.

    Raises `FarmError` where the file exists or cannot be written.
    """
    # A link to a file that is not there does not exist to `exists`.
    if target.exists() or target.is_symlink():
        raise FarmError(f"{target} exists already; a backup overwrites nothing")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # `VACUUM INTO` writes to a file that exists as long as it is empty.
        with replacing(target, FILE_MODE) as draft:
            database.backup(Path(draft.name))
        return target.stat().st_size
    except OSError as error:
        raise FarmError(f"{target} cannot be written: {error.strerror}") from error
