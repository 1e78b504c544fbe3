"""`farm results`: show the measured results."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.budgets import BudgetOption, JunitOption
from orchestrator.cli.verb import OK, Json, open_farm

if TYPE_CHECKING:
    from orchestrator.farm import Farm
    from orchestrator.results.records import CellRecord


class Format(StrEnum):
    """The forms in which results are written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"


def results(
    campaign: Annotated[
        str,
        typer.Option(
            "--campaign", metavar="ID|all", help="The campaign to show, or 'all'; by default the last one."
        ),
    ] = "",
    form: Annotated[Format, typer.Option("--format", help="The form of the output.")] = Format.TABLE,
    budget: BudgetOption = None,
    junit: JunitOption = None,
    as_json: Json = False,
) -> int:
    """Show the newest counted result of each cell.

    The JSON form is stable: docs/results-format.md describes it.
    Exit code: 0, or 3 where a cell exceeds a --budget.
    """
    from orchestrator.cli import budgets as budgets_of
    from orchestrator.cli import output
    from orchestrator.cli.outcome import comparison_markdown, comparison_table
    from orchestrator.results.export import results_csv, results_document

    budgets = budgets_of.read(budget or [])
    with open_farm() as farm:
        cells, baseline = _chosen(farm, campaign)
    if as_json or form is Format.JSON:
        output.raw(results_document(cells))
    elif form is Format.CSV:
        output.raw(results_csv(cells))
    elif form is Format.MD:
        output.raw(comparison_markdown(newest(cells), baseline))
    else:
        comparison_table(newest(cells), baseline)
    return budgets_of.conclude(campaign or "results", newest(cells), budgets, junit, OK)


def _chosen(farm: Farm, ref: str) -> tuple[Sequence[CellRecord], str | None]:
    """Return the cells and the baseline of their table; for all campaigns it is the last one's."""
    from orchestrator.errors import UsageError

    campaigns = farm.reading.campaigns()
    if not campaigns:
        raise UsageError("no campaigns yet; submit one: farm submit models.yaml")
    if ref == "all":
        return farm.reading.cells("all"), campaigns[0].baseline
    record = farm.reading.campaign(ref or None)
    return farm.reading.cells(record.campaign_id), record.baseline


def newest(cells: Sequence[CellRecord]) -> list[CellRecord]:
    """Return one cell of each model x delegate x device x level: the one that ended last."""
    found: dict[tuple[str, ...], CellRecord] = {}
    for cell in cells:
        key = (cell.model, cell.delegate, cell.device, cell.level)
        if key not in found or _ended(cell) >= _ended(found[key]):
            found[key] = cell
    return list(found.values())


def _ended(cell: CellRecord) -> float:
    return 0.0 if cell.finished_at is None else cell.finished_at.timestamp()
