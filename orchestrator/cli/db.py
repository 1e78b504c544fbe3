"""`farm db`: maintain the database and the store."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from agent.wire.private_folder import keep_new_files_private
from orchestrator.cli import output
from orchestrator.cli.doctor import report
from orchestrator.cli.verb import Json, open_farm, read_age, settings
from orchestrator.config.clock import utc_now
from orchestrator.config.home import make_folders
from orchestrator.config.limits import size_text
from orchestrator.db.engine.sessions import Database
from orchestrator.errors import UsageError
from orchestrator.farm.remote.farm import ON_THE_SERVER
from orchestrator.maintenance import references
from orchestrator.maintenance.check import backup, check
from orchestrator.maintenance.prune import Keep, Pruned, prune
from orchestrator.maintenance.restore import Restoring, restoring


def prune_database(
    keep: Annotated[
        str | None,
        typer.Option("--keep", metavar="AGE", help="Keep campaigns that ended within: 12h, 90d, 8w."),
    ] = None,
    keep_campaigns: Annotated[
        int | None,
        typer.Option("--keep-campaigns", metavar="N", min=0, help="Keep the N campaigns that ended last."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted; delete nothing.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Delete old campaigns, and the models and samples that nothing needs any more.

    With both options, only campaigns that neither keeps are deleted. Campaigns that have not ended, campaigns
    whose results a later one shows, and files younger than a week are always kept.

    Examples:
      farm db prune --keep 90d --dry-run
      farm db prune --keep-campaigns 20
    """
    if keep is None and keep_campaigns is None:
        raise UsageError("an option is needed: farm db prune --keep 90d, or --keep-campaigns 20")
    kept = Keep(None if keep is None else read_age(keep, "--keep"), keep_campaigns)
    with open_farm() as farm:
        gone = prune(farm.database, farm.reading.store(), kept, utc_now(), dry_run=dry_run)
    return output.answer(_json(gone, dry_run), _lines(gone, dry_run), as_json)


def back_up_database(
    file: Annotated[Path, typer.Argument(help="A new file: SQLite, or pg_dump's custom form.")],
    as_json: Json = False,
) -> int:
    """Copy the database to a new file while the farm works.

    `farm db restore` puts it back. The store is not included.

    Examples:
      farm db backup farm-2026-01-31.db
    """
    with open_farm() as farm:
        size_bytes = backup(farm.database, file)
    return output.answer(
        {"file": str(file), "bytes": size_bytes}, f"{file}: {size_text(size_bytes)}", as_json
    )


def restore_database(
    file: Annotated[Path, typer.Argument(help="A backup that `farm db backup` made.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show who gets in by it and who does not; change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Restore it.")] = False,
    as_json: Json = False,
) -> int:
    """Put a backup in the place of the database, wholly or not at all, while the farm is stopped.

    Users and agents that were revoked after the backup stay revoked, and used one-time tokens stay used. Whom
    the present database does not know gets in again by the backup: revoke those who must not. The former file
    of SQLite is kept beside the new one. The store is not included: see farm db check afterwards.

    Examples:
      farm db restore farm-2026-01-31.db --dry-run
      farm db restore farm-2026-01-31.db --yes
    """
    # Neither of them, or both.
    if dry_run == yes:
        raise UsageError("one of --dry-run and --yes is needed: farm db restore FILE --dry-run")
    keep_new_files_private()
    home, lab = settings()
    if lab.user_token is not None:
        raise UsageError(ON_THE_SERVER)
    make_folders(home)
    now = utc_now()
    # Not `open_farm`: it would migrate the database that is replaced here, and needs one that it can read.
    with (
        closing(Database.connect(lab.database_url or home.database, home.root)) as database,
        restoring(database, home, file, now) as found,
    ):
        kept = found.restore(now) if yes else None
    told = {
        "restored": yes,
        "stay_revoked": found.stay_out,
        "valid_again": found.valid_again,
        "not_in_backup": found.shut_out,
        "compared": found.is_read,
        "kept": None if kept is None else str(kept),
    }
    return output.answer(told, _restored(found, file, kept, dry_run), as_json)


def check_database(
    deep: Annotated[bool, typer.Option("--deep", help="Also hash every model and samples file.")] = False,
    as_json: Json = False,
) -> int:
    """Check that the database is intact and that the store has every file it names.

    Exit code: 0 no fault, 1 a fault.

    Examples:
      farm db check
      farm db check --deep
    """
    with open_farm() as farm:
        checks = check(farm.database, farm.reading.store(), deep=deep)
    return report(checks, as_json)


def show_references(
    model: Annotated[
        str | None, typer.Argument(help="A model: its name, or the beginning of its sha256.")
    ] = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="Forget those of this model: agents make them anew.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Show what agents made for outputs to be judged by, and what the farm hands on to other agents.

    A reference is LiteRT's own output. One that could not be made, because LiteRT's kernels abort or are too
    slow, is remembered too, until it is forgotten; with another release of LiteRT it is tried again.

    Examples:
      farm db references
      farm db references mobilenet --forget
    """
    if forget and model is None:
        raise UsageError("--forget needs a model: farm db references MODEL --forget")
    with open_farm() as farm:
        found = references.known(farm.database, model or "", farm.lab.reference_agents)
        if forget:
            references.forget(farm.database, found)
    count = sum(len(entry.references) for entry in found)
    last = f"{'forgotten' if forget else 'known'}: {count} references of {len(found)} models"
    lines = [*(line for entry in found for line in entry.lines()), last]
    models = [entry.to_json() for entry in found]
    return output.answer({"forgotten": forget, "models": models}, lines, as_json)


def _restored(found: Restoring, file: Path, kept: Path | None, dry_run: bool) -> Iterator[str]:
    if not found.is_read:
        yield "the present database cannot be read: only keys/revoked says who was revoked"
    yield from (f"stays revoked: {who}" for who in found.stay_out)
    yield from (f"valid again, and not known now: {who}" for who in found.valid_again)
    yield from (f"not in the backup, so no longer valid: {who}" for who in found.shut_out)
    yield f"{file} {'would be' if dry_run else 'is'} restored"
    if kept is not None:
        yield f"the former database is {kept}"


def _lines(gone: Pruned, dry_run: bool) -> Iterator[str]:
    for kept in gone.shown:
        yield f"{kept.campaign_id} {kept.name} is kept: a later campaign shows its results"
    for one in gone.campaigns:
        yield f"{one.campaign_id} {one.name}, ended {one.ended_at:%Y-%m-%d}, {one.cells} cells"
    verb = "would be deleted" if dry_run else "deleted"
    size = size_text(gone.freed_bytes)
    yield f"{verb}: {len(gone.campaigns)} campaigns, {gone.artifacts} files of the store, {size}"


def _json(gone: Pruned, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "campaigns": [
            {"campaign_id": c.campaign_id, "name": c.name, "ended_at": c.ended_at, "cells": c.cells}
            for c in gone.campaigns
        ],
        "shown_by_later_ones": [campaign.campaign_id for campaign in gone.shown],
        "files": gone.artifacts,
        "bytes": gone.freed_bytes,
    }


VERBS = {
    "prune": prune_database, "backup": back_up_database, "restore": restore_database,
    "check": check_database, "references": show_references,
}  # fmt: skip
