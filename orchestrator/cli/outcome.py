"""Prints the results of a campaign, as the answer or as the table of everything; computes the exit code."""

import textwrap
from collections.abc import Sequence
from functools import partial

from orchestrator.cli import output
from orchestrator.cli.output import escaped, markdown_table
from orchestrator.cli.verb import OK, SOME_FAILED
from orchestrator.results.answer.build import answer_of
from orchestrator.results.answer.entries import Entry
from orchestrator.results.answer.layout import lines
from orchestrator.results.comparison import all_well, compare, summary
from orchestrator.results.export import result_objects
from orchestrator.results.format import counted
from orchestrator.results.metric import Metric
from orchestrator.results.metrics import CI95, P50
from orchestrator.results.records import CampaignRecord, CellRecord
from orchestrator.results.wording import LONGEST_REASON, SIGNS, WORDS, Footnotes, first_line, reasons_of

_WIDEST_CELL = 40
"""Characters of a line in the table, chosen so that a model and three delegates fit 160 columns; longer lines
are wrapped at blanks."""


def end_of_campaign(
    campaign: CampaignRecord, cells: Sequence[CellRecord], as_json: bool, *, verbose: bool = False
) -> int:
    """Print a campaign's results; the exit code is 1 where a cell failed, was struck out or cancelled."""
    if as_json:
        output.emit_json(result_objects(cells))
    elif verbose:
        comparison_table(cells, campaign.baseline)
        output.line(summary(cells))
    else:
        answer_table(cells, campaign.baseline)
    return OK if all_well(cells) else SOME_FAILED


def answer_table(cells: Sequence[CellRecord], baseline: str | None, metric: Metric = P50) -> None:
    """Print the answer: one line a model, as wide as the terminal."""
    for line in lines(answer_of(cells, baseline, metric), output.width()):
        output.line(line)


def comparison_table(cells: Sequence[CellRecord], baseline: str | None, metric: Metric = P50) -> None:
    """Print models x delegate@device, and below it each reason once."""
    notes = Footnotes()
    shown = compare(cells, baseline, partial(_marked, notes), metric)
    rows = [
        (model, *("\n".join(map(_wrapped, lines)) for lines in row))
        for model, row in zip(shown.models, shown.cells, strict=True)
    ]
    output.table(("model", *shown.columns), rows)
    for line in reason_lines(cells, notes):
        output.line(line)
    if metric is not P50:
        output.line(f"{metric.label}: {metric.help}")
    elif baseline is not None:
        output.line(f"{P50.label} of an invoke with its {CI95.label}; {legend(baseline)}")


def legend(baseline: str) -> str:
    """Say what the speed-ups and their signs mean."""
    signs = ", ".join(f"{sign} {WORDS[verdict]}" for verdict, sign in SIGNS.items() if sign)
    return (
        f"× is the speed-up over {baseline}, by blocks of one process each, with its {CI95.label} "  # noqa: RUF001  # multiplication sign
        f"({signs}; no sign where a result is void)"
    )


def answer_markdown(cells: Sequence[CellRecord], baseline: str | None, metric: Metric = P50) -> str:
    """Write the answer as Markdown, with all columns but the further ones."""
    answer = answer_of(cells, baseline, metric)
    head = [answer.title.text + f" · {answer.title.right}", *("".join(one) + "." for one in answer.sentences)]
    columns = [[_in_markdown(entry) for entry in column.entries] for column in answer.columns]
    rows = [(model, *(column[index] for column in columns)) for index, model in enumerate(answer.models)]
    if answer.mean_heading:
        rows.append((answer.mean_heading, *(column.mean for column in answer.columns)))
    table = markdown_table(("model", *(column.heading for column in answer.columns)), rows)
    foot = [*(["  ".join(answer.legend)] if answer.legend else []), *answer.notes]
    return "\n".join(
        [*(f"{escaped(line)}  " for line in head), "", table, *(f"{escaped(line)}  " for line in foot), ""]
    )


def _in_markdown(entry: Entry | None) -> str:
    if entry is None:
        return ""
    figures = " ".join(filter(None, (entry.sign, entry.time, entry.ratio)))
    sure = entry.more.get("±", "")
    return entry.word or (f"{figures} ±{sure}" if sure else figures)


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
        lines.append(f"[{notes.mark(shared.text)}] {counted(len(shared.cells), 'cell')}: {text}{more}")
    return lines


def _marked(notes: Footnotes, cell: CellRecord) -> str:
    """Return the code of a reason with the mark of its text: whole texts would push the columns apart."""
    if cell.reason is None:
        return ""
    return f"{cell.reason.code} [{notes.mark(cell.reason.text)}]" if cell.reason.text else cell.reason.code


def _wrapped(text: str) -> str:
    # Names have hyphens (`cpu-t4`), at which they are not to be divided.
    return textwrap.fill(text, _WIDEST_CELL, break_on_hyphens=False)
