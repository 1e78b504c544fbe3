"""How long results are kept, and what of the store goes with them."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from agent.wire.messages import artifact_path
from orchestrator.db.engine.session import Database
from orchestrator.db.migrate import HEAD, pending_changes, revision
from orchestrator.db.write import retention
from orchestrator.db.write.retention import Ended, Reference
from orchestrator.doctor.check import Check
from orchestrator.errors import FarmError
from orchestrator.sources import health_model
from orchestrator.sources.store import Store

GRACE: Final = timedelta(days=7)
"""An artifact this young stays though nothing names it: its result may still be on the way."""

_SHOWN_FAULTS = 5

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Keep:
    """What stays: campaigns that ended within `age`, and the `campaigns` that ended last. One is given."""

    age: timedelta | None = None
    campaigns: int | None = None


@dataclass(frozen=True, slots=True)
class Pruned:
    """What went, or would go. `shown`: campaigns that stay because later ones show their results."""

    campaigns: tuple[Ended, ...]
    shown: tuple[Ended, ...]
    artifacts: int
    freed_bytes: int


def to_prune(ended: Sequence[Ended], keep: Keep, now: datetime) -> list[Ended]:
    """Those of the campaigns (the one that ended last first) that no part of `keep` keeps."""
    beyond = ended if keep.campaigns is None else ended[keep.campaigns :]
    return [campaign for campaign in beyond if keep.age is None or campaign.ended_at < now - keep.age]


def prune(
    database: Database,
    store: Store,
    keep: Keep,
    now: datetime,
    *,
    dry_run: bool = False,
    grace: timedelta = GRACE,
) -> Pruned:
    """Forget old campaigns and delete artifacts that nothing names; waits for submissions under way.

    Campaigns that are not over stay, and so do those whose results another one shows. Raises
    `UnreachableError`; what was forgotten before stays so.
    """
    with store.collecting():
        with database.read() as session:
            wanted = to_prune(retention.ended(session), keep, now)
            numbers = {campaign.no for campaign in wanted}
            while shown := retention.shown_elsewhere(session, numbers):
                numbers -= shown
        if not dry_run:
            for number in sorted(numbers):
                _forget(database, number)
            with database.write() as session:
                retention.forget_unused(session)
        with database.read() as session:
            named = {entry.sha256 for entry in retention.references(session, numbers if dry_run else ())}
        named.add(health_model.model_sha256())
        artifacts, freed_bytes = _collect(store, named, (now - grace).timestamp(), dry_run=dry_run)
    return Pruned(
        campaigns=tuple(campaign for campaign in wanted if campaign.no in numbers),
        shown=tuple(campaign for campaign in wanted if campaign.no not in numbers),
        artifacts=artifacts,
        freed_bytes=freed_bytes,
    )


def check(database: Database, store: Store, *, deep: bool = False) -> list[Check]:
    """Whether database and store are whole and fit each other; `deep`: every artifact is hashed."""
    checks = []
    for name, look in (("integrity", _integrity), ("tables", _tables), ("results", _results)):
        try:
            checks.append(look(database))
        except FarmError as error:
            checks.append(Check(name, False, str(error), "farm db backup tells whether it can be read"))
    try:
        with database.read() as session:
            named = retention.references(session)
    except FarmError as error:
        return [*checks, Check("artifacts", False, str(error), "see the check before")]
    return [*checks, _artifacts(store, named, deep=deep)]


def backup(database: Database, target: Path) -> int:
    """Copy the database to a new file that only this user may read; returns its size in bytes.

    Raises `FarmError` where the file exists or cannot be written.
    """
    if target.exists() or target.is_symlink():
        raise FarmError(f"{target} exists already; a backup overwrites nothing")
    part = target.with_name(f".{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        part.touch(0o600)
        database.backup(part)
        part.rename(target)
        return target.stat().st_size
    except OSError as error:
        raise FarmError(f"{target} cannot be written: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)


def _forget(database: Database, number: int) -> None:
    gone = False
    while not gone:
        with database.write() as session:
            gone = retention.forget(session, number)


def _collect(store: Store, named: Collection[str], before: float, *, dry_run: bool) -> tuple[int, int]:
    """Delete unnamed files that are older than `before`; how many artifacts, and how many bytes."""
    artifacts = freed_bytes = 0
    for path in (*_artifact_files(store.root), *(store.root / "incoming").glob("*")):
        stat = path.lstat()
        if path.name in named or stat.st_mtime >= before:
            continue
        artifacts += path.parent.name != "incoming"
        freed_bytes += stat.st_size
        if not dry_run:
            path.unlink(missing_ok=True)
    if not dry_run:
        for path in (store.root / "sources").glob("*.json"):
            if not _still_there(store, path):
                path.unlink(missing_ok=True)
    return artifacts, freed_bytes


def _artifact_files(root: Path) -> Iterator[Path]:
    return (root / "sha256").glob("[0-9a-f][0-9a-f]/*")


def _still_there(store: Store, source: Path) -> bool:
    try:
        return store.find(json.loads(source.read_bytes())["sha256"]) is not None
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _integrity(database: Database) -> Check:
    faults = database.faults()
    if faults:
        found = "; ".join(faults[:_SHOWN_FAULTS])
        return Check(
            "integrity", False, f"{database.name}: {found}", "restore a backup (farm db backup makes one)"
        )
    return Check("integrity", True, database.name)


def _tables(database: Database) -> Check:
    found = revision(database)
    changes = pending_changes(database)
    if found != HEAD or changes:
        said = f"revision {found}, {len(changes)} differences from revision {HEAD}"
        return Check(
            "tables", False, said, "restore a backup, or tell the developers what changed the tables"
        )
    return Check("tables", True, f"revision {found}")


def _results(database: Database) -> Check:
    with database.read() as session:
        unshown = retention.unshown(session)
    if unshown:
        return Check("results", False, f"{unshown} cells show a result that is gone", "farm retry CAMPAIGN")
    return Check("results", True, "every cell's result is there")


def _artifacts(store: Store, named: Sequence[Reference], *, deep: bool) -> Check:
    wrong = [
        f"{entry.what} {entry.sha256[:12]} {why}" for entry in named if (why := _fault(store, entry, deep))
    ]
    if wrong:
        said = f"{len(wrong)} of {len(named)}: {'; '.join(wrong[:_SHOWN_FAULTS])}"
        fix = "submit the campaigns of these models again; samples that are gone stay gone"
        return Check("artifacts", False, said, fix)
    return Check("artifacts", True, f"{len(named)} {'hashed, all' if deep else 'there,'} well")


def _fault(store: Store, entry: Reference, deep: bool) -> str:
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
