"""What a campaign came to: the comparison table, the counts, the exit code."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from orchestrator.cli import output
from orchestrator.cli.verb import OK, SOME_FAILED
from orchestrator.results.comparison import all_well, compare, summary
from orchestrator.results.records import CampaignRecord, CellRecord

_WIDEST_CELL = 40


def end_of_campaign(campaign: CampaignRecord, cells: Sequence[CellRecord], as_json: bool) -> int:
    """Print a campaign's results; the exit code is 1 where a cell failed, was struck out or cancelled."""
    if as_json:
        output.emit_json([cell.to_json() for cell in cells])
    else:
        comparison_table(cells, campaign.baseline)
        output.line(summary(cells))
    return OK if all_well(cells) else SOME_FAILED


def comparison_table(cells: Sequence[CellRecord], baseline: str | None) -> None:
    """Print models x delegate@device."""
    shown = compare(cells, baseline)
    rows = [["\n".join(map(_wrapped, text.split("\n"))) for text in row] for row in shown.rows]
    output.table([output.Column(heading) for heading in shown.headings], rows)
    if baseline is not None:
        output.line(f"p50 of an invoke with its 95 % interval; × is the speed-up over {baseline}")  # noqa: RUF001  # multiplication sign


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDEST_CELL, break_on_hyphens=False)
