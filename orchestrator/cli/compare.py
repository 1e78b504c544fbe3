"""`farm compare`: what changed between two runs, or between delegates, devices or models of one."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.verb import OK, REGRESSION, CampaignRef, Json, open_farm

if TYPE_CHECKING:
    from orchestrator.results.records import CellRecord
    from orchestrator.results.regression import Change, Difference, Estimate, Report


class By(StrEnum):
    """What the two sides of a comparison within one campaign differ in."""

    DEVICE = "device"
    DELEGATE = "delegate"
    MODEL = "model"


class Form(StrEnum):
    """The forms in which a comparison is written."""

    TABLE = "table"
    JSON = "json"
    MD = "md"


class FailOn(StrEnum):
    """What ends the command with exit code 3."""

    NOTHING = "nothing"
    REGRESSION = "regression"


def compare(
    a: CampaignRef,
    b: Annotated[
        str, typer.Argument(help="The second campaign; with --by, two values of campaign A: VALUE,VALUE.")
    ],
    by: Annotated[
        By | None, typer.Option("--by", help="Compare two values within campaign A: delegate, device, model.")
    ] = None,
    form: Annotated[Form, typer.Option("--format", help="The form of the output.")] = Form.TABLE,
    show_all: Annotated[
        bool, typer.Option("--all", help="Also list cells that are the same or inconclusive.")
    ] = False,
    threshold: Annotated[
        float, typer.Option("--threshold", min=0.0, max=100.0, metavar="PERCENT", help="Least change.")
    ] = 3.0,
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="Exit with 3 where a cell is slower or lost its result.")
    ] = FailOn.NOTHING,
    as_json: Json = False,
) -> int:
    """Compare two runs: what is slower, faster, or the same.

    Each model's change of p50 with its 95 % interval, unpaired: the runs were not interleaved.
    Exit code: 0, or with --fail-on regression 3 where a cell is slower or has no right result any more.
    """
    from orchestrator.cli import output
    from orchestrator.results.regression import compare_runs

    with open_farm() as farm:
        first = farm.reading.cells(farm.reading.campaign(a).campaign_id)
        second = first if by is not None else farm.reading.cells(farm.reading.campaign(b).campaign_id)
    sides = _sides(first, second, by, b)
    report = compare_runs(*sides, threshold / 100.0)
    if as_json or form is Form.JSON:
        output.emit_json(_as_json(report))
    elif form is Form.MD:
        output.raw(_markdown(report, show_all))
    else:
        _table(report, show_all)
    return REGRESSION if fail_on is FailOn.REGRESSION and report.has_regression else OK


def _sides(
    first: Sequence[CellRecord], second: Sequence[CellRecord], by: By | None, values: str
) -> tuple[dict[tuple[str, ...], CellRecord], dict[tuple[str, ...], CellRecord]]:
    """The cells of both sides by what they have in common."""
    from orchestrator.errors import UsageError
    from orchestrator.manifest.problems import suggestion

    names = ("model", "delegate", "device", "level")
    if by is None:
        keyed = [{tuple(getattr(c, n) for n in names): c for c in side} for side in (first, second)]
        return keyed[0], keyed[1]
    known = sorted({getattr(cell, by.value) for cell in first})
    chosen = values.split(",")
    if len(chosen) != 2:
        raise UsageError(f"--by {by.value} takes two values, e.g. {','.join(known[:2])}")
    for value in chosen:
        if value not in known:
            raise UsageError(f"no {by.value} of this campaign is {value!r}{suggestion(value, known)}")
    common = [name for name in names if name != by.value]
    sides = [
        {tuple(getattr(c, n) for n in common): c for c in first if getattr(c, by.value) == value}
        for value in chosen
    ]
    return sides[0], sides[1]


_SIGNS = {
    "slower": "▼", "broken": "✗", "faster": "▲", "mended": "✓", "inconclusive": "?", "same": "=",
    "missing": "-",
}  # fmt: skip
"""A sign for each verdict, in the order of the table."""


def _rows(report: Report, show_all: bool) -> list[tuple[str, ...]]:
    quiet = () if show_all else ("same", "inconclusive")
    places = {verdict: place for place, verdict in enumerate(_SIGNS)}
    listed = (change for change in report.changes if change.verdict not in quiet)
    ordered = sorted(listed, key=lambda change: (places[change.verdict], change.key))
    return [
        (
            " ".join(change.key),
            _latency(change.first),
            _latency(change.second),
            _percent(change.estimate),
            f"{_SIGNS[change.verdict]} {change.verdict}",
            change.why,
        )
        for change in ordered
    ]


_HEADINGS = ("cell", "A ms", "B ms", "change of p50", "verdict", "why")


def _table(report: Report, show_all: bool) -> None:
    from orchestrator.cli import output

    rows = _rows(report, show_all)
    if rows:
        output.table([output.Column(heading) for heading in _HEADINGS], rows)
    for line in _summary(report, show_all):
        output.line(line)


def _markdown(report: Report, show_all: bool) -> str:
    from orchestrator.cli.markdown import markdown_table

    rows = _rows(report, show_all)
    table = markdown_table(_HEADINGS, rows) + "\n" if rows else ""
    return table + "\n".join(f"{line}  " for line in _summary(report, show_all)) + "\n"


def _summary(report: Report, show_all: bool) -> list[str]:
    counts = report.counts
    said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    hidden = 0 if show_all else counts.get("same", 0) + counts.get("inconclusive", 0)
    lines = [f"{len(report.changes)} cells: {said}" + (f"; {hidden} not listed (--all)" if hidden else "")]
    if report.mean is not None:
        over = sum(change.estimate is not None for change in report.changes)
        left = len(report.changes) - over
        without = f"; {left} without a ratio are not in it" if left else ""
        lines.append(f"geometric mean over {over} cells: {_percent(report.mean)}{without}")
    lines.append("unpaired: not measured interleaved, so that the machine's own drift is in every ratio")
    return lines + [_difference(found) for found in report.differences]


def _difference(found: Difference) -> str:
    return f"differs: {found.name}: {found.before} -> {found.after} ({found.cells} cells)"


def _latency(cell: CellRecord | None) -> str:
    from orchestrator.results import format as text
    from orchestrator.results.speedups import counted_latency

    latency = None if cell is None else counted_latency(cell)
    return text.milliseconds(None if latency is None else latency.p50)


def _percent(estimate: Estimate | None) -> str:
    from orchestrator.results.format import NOTHING

    if estimate is None:
        return NOTHING
    if estimate.ci95 is None:
        return f"{estimate.ratio - 1.0:+.1%}"
    low, high = estimate.ci95
    return f"{estimate.ratio - 1.0:+.1%} [{low - 1.0:+.1%}, {high - 1.0:+.1%}]"


def _as_json(report: Report) -> dict[str, object]:
    return {
        "paired": False,
        "counts": dict(report.counts),
        "geometric_mean": _estimate_json(report.mean),
        "changes": [_change_json(change) for change in report.changes],
        "differences": [
            {"name": d.name, "before": d.before, "after": d.after, "cells": d.cells}
            for d in report.differences
        ],
    }


def _change_json(change: Change) -> dict[str, object]:
    return {
        "key": list(change.key),
        "verdict": change.verdict,
        "ratio": _estimate_json(change.estimate),
        "cells": [None if cell is None else cell.cell_id for cell in (change.first, change.second)],
        "why": change.why,
    }


def _estimate_json(estimate: Estimate | None) -> dict[str, object] | None:
    if estimate is None:
        return None
    return {
        "median": estimate.ratio,
        "ci95": None if estimate.ci95 is None else list(estimate.ci95),
        "p": estimate.p,
    }
