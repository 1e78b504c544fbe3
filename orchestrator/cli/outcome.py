"""Prints the end of a campaign: the comparison table and the counts; computes the exit code."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from orchestrator.cli import output
from orchestrator.cli.markdown import markdown_table
from orchestrator.cli.verb import OK, SOME_FAILED
from orchestrator.results.comparison import all_well, compare, reason_text, summary
from orchestrator.results.export import result_json
from orchestrator.results.metrics import CI95, P50
from orchestrator.results.records import CampaignRecord, CellRecord

_WIDEST_CELL = 40
"""Characters of a line in the table, chosen so that a model and three delegates fit 160 columns; longer lines
are wrapped at blanks."""

LONGEST_REASON = 180
"""Characters of a reason in the table: four or five wrapped lines. A longer one is cut, and `farm show` has
it in full."""


def end_of_campaign(campaign: CampaignRecord, cells: Sequence[CellRecord], as_json: bool) -> int:
    """Print a campaign's results; the exit code is 1 where a cell failed, was struck out or cancelled."""
    if as_json:
        output.emit_json([result_json(cell) for cell in cells])
    else:
        comparison_table(cells, campaign.baseline)
        output.line(summary(cells))
    return OK if all_well(cells) else SOME_FAILED


def comparison_table(cells: Sequence[CellRecord], baseline: str | None) -> None:
    """Print models x delegate@device."""
    shown = compare(cells, baseline, short_reason)
    rows = [
        (model, *("\n".join(map(_wrapped, lines)) for lines in row))
        for model, row in zip(shown.models, shown.cells, strict=True)
    ]
    output.table([output.Column(heading) for heading in ("model", *shown.columns)], rows)
    if baseline is not None:
        output.line(f"{P50.label} of an invoke with its {CI95.label}; × is the speed-up over {baseline}")  # noqa: RUF001  # multiplication sign


def comparison_markdown(cells: Sequence[CellRecord], baseline: str | None) -> str:
    """Write the same table as Markdown."""
    shown = compare(cells, baseline, short_reason)
    rows = [
        (model, *("\n".join(lines) for lines in row))
        for model, row in zip(shown.models, shown.cells, strict=True)
    ]
    return markdown_table(("model", *shown.columns), rows)


def short_reason(cell: CellRecord) -> str:
    """Write code and text; a long text is cut, with the command that shows all of it."""
    text = reason_text(cell)
    if len(text) <= LONGEST_REASON:
        return text
    return f"{text[:LONGEST_REASON].rstrip()}… (farm show {cell.cell_id[:10]})"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDEST_CELL, break_on_hyphens=False)
