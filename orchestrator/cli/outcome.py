"""Prints the end of a campaign: the comparison table and the counts; computes the exit code."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import partial

from orchestrator.cli import output
from orchestrator.cli.markdown import escaped, markdown_table
from orchestrator.cli.verb import OK, SOME_FAILED
from orchestrator.results.comparison import SIGNS, all_well, compare, summary
from orchestrator.results.export import result_json
from orchestrator.results.footnotes import Footnotes
from orchestrator.results.metric import Metric
from orchestrator.results.metrics import CI95, P50
from orchestrator.results.reasons import LONGEST_REASON, first_line, reasons_of
from orchestrator.results.records import CampaignRecord, CellRecord

_WIDEST_CELL = 40
"""Characters of a line in the table, chosen so that a model and three delegates fit 160 columns; longer lines
are wrapped at blanks."""


def end_of_campaign(campaign: CampaignRecord, cells: Sequence[CellRecord], as_json: bool) -> int:
    """Print a campaign's results; the exit code is 1 where a cell failed, was struck out or cancelled."""
    if as_json:
        output.emit_json([result_json(cell) for cell in cells])
    else:
        comparison_table(cells, campaign.baseline)
        output.line(summary(cells))
    return OK if all_well(cells) else SOME_FAILED


def comparison_table(cells: Sequence[CellRecord], baseline: str | None, metric: Metric = P50) -> None:
    """Print models x delegate@device, and below it each reason once."""
    notes = Footnotes()
    shown = compare(cells, baseline, partial(_marked, notes), metric)
    rows = [
        (model, *("\n".join(map(_wrapped, lines)) for lines in row))
        for model, row in zip(shown.models, shown.cells, strict=True)
    ]
    output.table([output.Column(heading) for heading in ("model", *shown.columns)], rows)
    for line in reason_lines(cells, notes):
        output.line(line)
    if metric is not P50:
        output.line(f"{metric.label}: {metric.help}")
    elif baseline is not None:
        output.line(f"{P50.label} of an invoke with its {CI95.label}; {legend(baseline)}")


def legend(baseline: str) -> str:
    """Say what the speed-ups and their signs mean."""
    signs = ", ".join(f"{sign} {verdict}" for verdict, sign in SIGNS.items())
    return (
        f"× is the speed-up over {baseline}, by blocks of one process each, with its {CI95.label} "  # noqa: RUF001  # multiplication sign
        f"({signs}; no sign where a result is void)"
    )


def comparison_markdown(cells: Sequence[CellRecord], baseline: str | None, metric: Metric = P50) -> str:
    """Write the same table as Markdown, and the reasons as a list."""
    notes = Footnotes()
    shown = compare(cells, baseline, partial(_marked, notes), metric)
    rows = [
        (model, *("\n".join(lines) for lines in row))
        for model, row in zip(shown.models, shown.cells, strict=True)
    ]
    reasons = "".join(f"- {escaped(line)}\n" for line in reason_lines(cells, notes))
    return markdown_table(("model", *shown.columns), rows) + (f"\n{reasons}" if reasons else "")


def reason_lines(cells: Sequence[CellRecord], notes: Footnotes) -> list[str]:
    """One line for each reason: its mark, how many cells ended for it, and where the rest of it is."""
    lines = []
    for shared in reasons_of(cells):
        text = first_line(shared.text, LONGEST_REASON)
        more = "" if text == shared.text else f" (farm show {shared.cells[0].cell_id[:10]})"
        lines.append(f"[{notes.mark(shared.text)}] {output.cells(len(shared.cells))}: {text}{more}")
    return lines


def _marked(notes: Footnotes, cell: CellRecord) -> str:
    """The code of a reason with the mark of its text: whole texts would push the columns apart."""
    if cell.reason is None:
        return ""
    return f"{cell.reason.code} [{notes.mark(cell.reason.text)}]" if cell.reason.text else cell.reason.code


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDEST_CELL, break_on_hyphens=False)
