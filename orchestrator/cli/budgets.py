"""What a submission's and a result's budgets print, write and return."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.verb import OK, REGRESSION

if TYPE_CHECKING:
    from orchestrator.manifest.budget import Budget
    from orchestrator.results.budgets import Judged
    from orchestrator.results.records import CellRecord
    from orchestrator.results.regression import Report

BudgetOption = Annotated[
    list[str] | None,
    typer.Option("--budget", metavar="'p50<=5ms'", help="Exit with 3 where a cell exceeds it; repeatable."),
]
JunitOption = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write cells and budgets as JUnit XML.")
]


def read(texts: Sequence[str], against: str | None = None) -> list[Budget]:
    """The budgets of a command line or a campaign file. Raises `UsageError`, also for a ratio where no
    campaign is named to which it could be taken (`against`).
    """
    from orchestrator.errors import UsageError
    from orchestrator.manifest.budget import RATIO, read_budget

    found = [read_budget(text) for text in texts]
    for budget in found:
        if budget.figure == RATIO and against is None:
            raise UsageError(
                f"budget {budget.text}: there is no campaign to compare with; farm submit takes one from the "
                "file: baseline: {against: {campaign: latest}}"
            )
    return found


def conclude(
    name: str,
    cells: Sequence[CellRecord],
    budgets: Sequence[Budget],
    junit: Path | None,
    exit_code: int,
    earlier: Report | None = None,
) -> int:
    """Print the budgets that were not met and write the JUnit file.

    Returns 3 where one is exceeded or has no figure to be judged by, else `exit_code`.

    `earlier`: the comparison with an earlier campaign, for budgets of the ratio. On GitHub's runners each
    exceeded budget is an annotation, too.
    """
    from orchestrator.cli import output
    from orchestrator.results.budgets import judge_budgets
    from orchestrator.results.junit import junit_xml

    judged = judge_budgets(cells, budgets, earlier)
    if junit is not None:
        junit.write_text(junit_xml(name, cells, judged), encoding="utf-8")
    for one in judged:
        if one.outcome != "met":
            output.note(_line(one))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for one in judged:
            if one.outcome in ("exceeded", "no_result"):
                output.note(f"::error title=budget::{_line(one)}")
    if judged:
        output.note(_counts(judged))
    failed = any(one.outcome in ("exceeded", "no_result") for one in judged)
    return REGRESSION if failed and exit_code == OK else exit_code


def _line(one: Judged) -> str:
    cell = one.cell
    outcome = one.outcome.replace("_", " ")
    return f"budget {one.budget.text} {outcome}: {cell.model} {cell.delegate}@{cell.device}: {one.said}"


def _counts(judged: Sequence[Judged]) -> str:
    names = ("met", "exceeded", "inconclusive", "no_result")
    counts = {name: sum(one.outcome == name for one in judged) for name in names}
    said = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count)
    return f"{len(judged)} budgets: {said}"
