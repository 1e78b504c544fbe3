"""`farm show`: one cell, in ten lines or in full, or the file of a campaign."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import output
from orchestrator.cli.details import brief_text, cell_text
from orchestrator.cli.verb import OK, CellWords, Json, open_farm
from orchestrator.errors import UsageError
from orchestrator.farm.remote.farm import AnyFarm
from orchestrator.results.export import cell_document, manifest_json
from orchestrator.results.profiles import profile_heading, profile_of
from orchestrator.results.records import CellRecord
from runtime.common.profile import Form, written


def show(
    cell: CellWords,
    manifest: Annotated[
        bool,
        typer.Option(
            "--manifest",
            help="Print the campaign file as it was submitted; CELL is then a campaign.",
        ),
    ] = False,
    everything: Annotated[
        bool,
        typer.Option("--all", "-a", help="Also print every figure, fallback, setting, attempt and sample."),
    ] = False,
    profile: Annotated[
        Form | None,
        typer.Option(
            "--profile",
            help="Print its profile: as text, as LiteRT's tables or csv, or as a flame graph for a browser.",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Show one cell in ten lines, or with --all in full.

    The ten lines say what was measured and how, its verdict, grade, accuracy, delegation, start and memory.
    A profile is there where the campaign asked for one, by `measure: {profile: kernels}`.

    Examples:
      farm show iris gpu
      farm show 3f2a
      farm show nightly --manifest
      farm show iris gpu --profile flame > iris.html
    """
    with open_farm() as farm:
        if manifest:
            return _manifest(farm, " ".join(cell), as_json)
        record = farm.reading.cell(" ".join(cell))
        if profile is not None:
            return _profile(record, profile)
        processes = farm.reading.samples(record) if everything or as_json else []
    if as_json:
        output.raw(cell_document(record, processes))
    else:
        output.line(brief_text(record))
        if everything:
            output.line("\n" + cell_text(record, processes))
    return OK


def _profile(cell: CellRecord, form: Form) -> int:
    found = profile_of(cell)
    if isinstance(found, str):
        raise UsageError(f"cell {cell.cell_id} has no profile: {found}")
    for line in written(found, profile_heading(cell), form):
        output.raw(f"{line}\n")
    return OK


def _manifest(farm: AnyFarm, ref: str, as_json: bool) -> int:
    """Print the file of a campaign; its JSON form also names where each model comes from."""
    found = farm.reading.manifest(ref)
    if found is None:
        raise UsageError(
            f"campaign {ref!r} has no file: it was submitted before files were kept, or without one"
        )
    if as_json:
        output.emit_json(manifest_json(found))
    else:
        output.raw(found.document)
    return OK
