"""`farm results`: show the measured results."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated

import typer

from orchestrator.cli import budgets as budgets_of
from orchestrator.cli import outcome, output
from orchestrator.cli.verb import OK, Json, Verbose, open_farm
from orchestrator.errors import UsageError
from orchestrator.farm.remote.farm import AnyFarm
from orchestrator.manifest.problems import suggestion
from orchestrator.results.export import results_csv, results_document, results_parquet, samples_csv
from orchestrator.results.metric import Metric
from orchestrator.results.metrics import METRICS, named
from orchestrator.results.records import CellRecord


class Format(StrEnum):
    """The forms in which results are written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"
    SAMPLES = "samples"
    PARQUET = "parquet"


def results(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CAMPAIGN|WORD...",
            help="A campaign: its id or name, or a part of one, or 'all'; by default the last one. Words of "
            "models, delegates, devices or levels, without CAMPAIGN in all of them.",
        ),
    ] = None,
    campaign: Annotated[
        str, typer.Option("--campaign", metavar="ID|all", help="The campaign; all words are others.")
    ] = "",
    label: Annotated[
        str, typer.Option("--label", metavar="WORD|NAME=VALUE", help="The newest campaign with this label.")
    ] = "",
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="GLOB", help="Models whose id matches; may be repeated."),
    ] = None,
    delegate: Annotated[
        list[str] | None,
        typer.Option("--delegate", metavar="GLOB", help="Delegates whose name matches; may be repeated."),
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option("--device", metavar="GLOB", help="Devices whose id matches; may be repeated."),
    ] = None,
    level: Annotated[
        list[str] | None, typer.Option("--level", help="Cells of this level; may be repeated.")
    ] = None,
    metric: Annotated[
        str, typer.Option("--metric", help="The figure to show: init, first, p99, ... (docs/metrics.md).")
    ] = "p50",
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="The form of the output; samples: each raw sample, as CSV; parquet: csv's rows, typed.",
        ),
    ] = Format.TABLE,
    verbose: Verbose = False,
    budget: budgets_of.BudgetOption = None,
    junit: budgets_of.JunitOption = None,
    undecided: budgets_of.UndecidedOption = budgets_of.Undecided.FAIL,
    as_json: Json = False,
) -> int:
    """Show the newest counted result of each cell, one line a model.

    A wider terminal gets more columns; a pipe has those of COLUMNS, else 120.
    The JSON form is stable: docs/results-format.md describes it.
    Exit code: 0, or 3 where a cell exceeds a --budget, 5 where one is undecided.

    Examples:
      farm results
      farm results mobilenet int8
      farm results nightly --metric init --only 'face_*'
      farm results all --format csv
      farm results all --only 'face_*' --format samples > samples.csv
      farm results all --format parquet > results.parquet
    """
    if label and campaign:
        raise UsageError(f"--label {label} and --campaign {campaign} both name a campaign; leave one out")
    budgets = budgets_of.read(budget or [])
    figure = _metric(metric)
    with open_farm() as farm:
        named = f"label:{label}" if label else campaign
        ref, others = (named, words or []) if named else _divided(farm, words or [])
        cells, baseline = _chosen(farm, ref)
        wanted = {"model": only, "delegate": delegate, "device": device, "level": level}
        cells = _matching(_fitting(cells, others), {name: globs for name, globs in wanted.items() if globs})
        # While the farm is open: samples are read from its store, or fetched, cell by cell.
        if form is Format.SAMPLES:
            for text in samples_csv(cells, farm.reading.samples):
                output.raw(text)
            return OK
    if as_json or form is Format.JSON:
        output.raw(results_document(cells))
    elif form is Format.PARQUET:
        output.binary(results_parquet(cells))
    elif form is Format.CSV:
        output.raw(results_csv(cells))
    elif form is Format.MD:
        write = outcome.comparison_markdown if verbose else outcome.answer_markdown
        output.raw(write(newest(cells), baseline, figure))
    else:
        show = outcome.comparison_table if verbose else outcome.answer_table
        show(newest(cells), baseline, figure)
    return budgets_of.conclude(ref or "results", newest(cells), budgets, junit, OK, undecided=undecided)


def _metric(word: str) -> Metric:
    found = named(word)
    if found is None:
        known = [metric.key.rpartition(".")[2] for metric in METRICS if metric.own_line]
        raise UsageError(f"no figure is called {word!r}{suggestion(word, known)}")
    return found


def _divided(farm: AnyFarm, words: list[str]) -> tuple[str, list[str]]:
    """Return the campaign that the first word names, all of them if it names none, and the other words."""
    if words and words[0] != "all":
        try:
            farm.reading.campaign(words[0])
        except UsageError:
            # The first word names no campaign: it is one of a model, delegate, device or level.
            return "all", words
    return (words[0], words[1:]) if words else ("", [])


def _fitting(cells: Sequence[CellRecord], words: Sequence[str]) -> Sequence[CellRecord]:
    """Return the cells in whose names every word occurs; a word that is a whole name is no part of another.

    Raises `UsageError` where there is none.
    """
    found = [
        (cell, [n.lower() for n in (cell.model, cell.delegate, cell.device, cell.level)]) for cell in cells
    ]
    for word in (word.lower() for word in words):
        whole = [one for one in found if word in one[1]]
        found = whole or [one for one in found if any(word in name for name in one[1])]
        if not found:
            names = {name for cell in cells for name in (cell.campaign, cell.model, cell.delegate)}
            raise UsageError(f"no campaign and no result is named by {word!r}{suggestion(word, names)}")
    return [cell for cell, _ in found]


def _matching(cells: Sequence[CellRecord], globs: Mapping[str, Sequence[str]]) -> Sequence[CellRecord]:
    """Return the cells whose named fields match their globs. Raises `UsageError` where none does."""
    found = cells
    for name, patterns in globs.items():
        values = {getattr(cell, name) for cell in cells}
        for pattern in patterns:
            if not any(fnmatchcase(value, pattern) for value in values):
                raise UsageError(
                    f"no {name} of these results matches {pattern!r}{suggestion(pattern, values)}"
                )
        found = [c for c in found if any(fnmatchcase(getattr(c, name), pattern) for pattern in patterns)]
    if cells and not found:
        raise UsageError(f"no cell matches all of: {', '.join(f'--{name}' for name in globs)}")
    return found


def _chosen(farm: AnyFarm, ref: str) -> tuple[Sequence[CellRecord], str | None]:
    """Return the cells and the baseline of their table; for all campaigns it is the last one's."""
    campaigns = farm.reading.campaigns()
    if not campaigns:
        raise UsageError("no campaigns yet; submit one: farm submit my.tflite")
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
