"""Options, output and exit code of the budgets of a submission or a result."""

import os
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import output
from orchestrator.cli.verb import OK, REGRESSION, UNDECIDED
from orchestrator.errors import UsageError
from orchestrator.manifest.budget import RATIO, Budget, read_budget
from orchestrator.results.budgets import FAILED, Judged, judge_budgets, junit_xml
from orchestrator.results.budgets import UNDECIDED as OUTCOMES_UNDECIDED
from orchestrator.results.format import counted
from orchestrator.results.records import CellRecord
from orchestrator.results.regression import Report


class Undecided(StrEnum):
    """The effect of an open answer on the exit code."""

    FAIL = "fail"
    WARN = "warn"


BudgetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        metavar="'p50<=5ms'",
        help="A limit that every cell must keep, else exit with 3; repeatable.",
    ),
]
JunitOption = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write cells and budgets as JUnit XML.")
]
UndecidedOption = Annotated[
    Undecided,
    typer.Option("--undecided", help="Exit with 5, or only warn, where it is open whether a limit is kept."),
]


def read(texts: Sequence[str], against: str | None = None) -> list[Budget]:
    """Read the budgets of a command line or a campaign file. Raises `UsageError`, also for a ratio if no
    campaign is named to which it could be taken (`against`).
    """
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
    undecided: Undecided = Undecided.FAIL,
) -> int:
    """Print the budgets that were not met and write the JUnit file.

    Returns 3 where one is exceeded or has no figure to be judged by, 5 where one is `undecided` and that is
    to fail; else, and where that tells of something else already, `exit_code`.

    `earlier`: the comparison with an earlier campaign, for budgets of the ratio. On GitHub's runners each
    budget that is not met is an annotation, too.
    """
    judged = judge_budgets(cells, budgets, earlier)
    failing = (*FAILED, *(OUTCOMES_UNDECIDED if undecided is Undecided.FAIL else ()))
    if junit is not None:
        try:
            junit.write_text(junit_xml(name, cells, judged, failing), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--junit {junit}: {error.strerror}") from error
    on_github = os.environ.get("GITHUB_ACTIONS") == "true"
    for one in judged:
        if one.outcome != "met":
            output.note(output.clean(_line(one)))
            if on_github:
                output.annotation("error" if one.outcome in failing else "warning", "budget", _line(one))
    if judged:
        output.note(_counts(judged))
    outcomes = {one.outcome for one in judged}
    if exit_code != OK or not outcomes.intersection(failing):
        return exit_code
    return REGRESSION if outcomes.intersection(FAILED) else UNDECIDED


def _line(one: Judged) -> str:
    cell = one.cell
    outcome = one.outcome.replace("_", " ")
    return f"budget {one.budget.text} {outcome}: {cell.model} {cell.delegate}@{cell.device}: {one.said}"


def _counts(judged: Sequence[Judged]) -> str:
    counts = Counter(one.outcome.replace("_", " ") for one in judged)
    said = ", ".join(f"{count} {name}" for name, count in counts.items())
    return f"{counted(len(judged), 'budget')}: {said}"
