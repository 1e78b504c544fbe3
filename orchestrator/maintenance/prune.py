"""Deletes old campaigns, and the files of the store that nothing names any more."""

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from orchestrator.db.campaigns import retention
from orchestrator.db.engine.sessions import Database
from orchestrator.sources import health_model
from orchestrator.sources.store import Store

GRACE: Final = timedelta(days=7)
"""A younger file stays though nothing names it: its result may still be on the way. Chosen: an agent
may lose its connection between the samples and their result, and be away for days.
"""


UNNAMED_GRACE: Final = timedelta(hours=1)
"""After so long a model that was sent and that no campaign names is deleted: its sender broke off, and sends
it again. Shorter would delete the first model of a campaign while its last one is still on the way."""


@dataclass(frozen=True, slots=True)
class Keep:
    """The limits of pruning: keep campaigns that ended within `age`, or the `campaigns` that ended last."""

    age: timedelta | None = None
    campaigns: int | None = None


@dataclass(frozen=True, slots=True)
class Pruned:
    """The deletions of a pruning or dry run. `shown`: campaigns whose results later ones show, which stay."""

    campaigns: tuple[retention.Ended, ...]
    shown: tuple[retention.Ended, ...]
    artifacts: int
    freed_bytes: int


def to_prune(ended: Sequence[retention.Ended], keep: Keep, now: datetime) -> list[retention.Ended]:
    """Return the campaigns that `keep` does not cover. `ended`: the one that ended last comes first."""
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
    """Delete old campaigns, and artifacts that nothing names; waits for submissions under way.

    Campaigns that have not ended stay, and so do those whose results another one shows. Raises
    `UnreachableError`; what was deleted before it stays deleted.
    """
    with store.collecting():
        with database.read() as session:
            wanted = to_prune(retention.ended(session), keep, now)
            numbers = {campaign.no for campaign in wanted}
            # A campaign that stays may show results of another: repeat until nothing changes.
            while shown := retention.shown_elsewhere(session, numbers):
                numbers -= shown
        if not dry_run:
            for number in sorted(numbers):
                _forget(database, number)
            with database.write() as turn:
                retention.forget_unused(turn)
        with database.read() as session:
            named = {entry.sha256 for entry in retention.references(session, numbers if dry_run else ())}
        # No campaign of a user names the model of the health check, and a check may start at any moment.
        named.add(health_model.model_sha256())
        artifacts, freed_bytes = _collect(store, named, (now - grace).timestamp(), dry_run=dry_run)
    return Pruned(
        campaigns=tuple(campaign for campaign in wanted if campaign.no in numbers),
        shown=tuple(campaign for campaign in wanted if campaign.no not in numbers),
        artifacts=artifacts,
        freed_bytes=freed_bytes,
    )


def collect_unnamed(database: Database, store: Store, now: datetime) -> int:
    """Delete what users sent `UNNAMED_GRACE` ago and no campaign names. Return how many files.

    Nothing is deleted while a submission is under way. Raises `UnreachableError`.
    """
    if not (old := store.unnamed((now - UNNAMED_GRACE).timestamp())):
        return 0
    with suppress(BlockingIOError), store.collecting(wait_s=0.0):
        # Read under the lock: a submission that held it until now has stored what it needs.
        with database.read() as session:
            needed = {entry.sha256 for entry in retention.references(session)} | {health_model.model_sha256()}
        for sha256 in old:
            if sha256 in needed:
                store.named(sha256)
            else:
                store.forget(sha256)
        return len(old - needed)
    return 0


def _forget(database: Database, number: int) -> None:
    # A transaction deletes a bounded number of cells: the scheduler must not wait for a large campaign.
    gone = False
    while not gone:
        with database.write() as turn:
            gone = retention.forget(turn, number)


def _collect(store: Store, named: Collection[str], before: float, *, dry_run: bool) -> tuple[int, int]:
    """Delete unnamed files that are older than `before`; how many artifacts, and how many bytes."""
    artifacts = freed_bytes = 0
    for path in (*_artifact_files(store.root), *(store.root / "incoming").glob("*")):
        try:
            stat = path.lstat()
        except FileNotFoundError:
            # The endpoint receives samples meanwhile: a file may have been moved to its final place since.
            continue
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
