"""`farm tune`: the best options of a model on this farm, by successive halving in alternating blocks."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import log
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml

from orchestrator.cli import output
from orchestrator.cli.progress import run_shown
from orchestrator.cli.verb import OK, SOME_FAILED, Json, open_farm
from orchestrator.errors import UsageError
from orchestrator.farm.conducting import submit_document
from orchestrator.manifest.campaign import DelegateEntry
from orchestrator.manifest.delegates import (
    DelegateForm,
    declared_options,
    default_kinds,
    expand,
    known_kinds,
    read_options,
    settled,
)
from orchestrator.manifest.problems import suggestion
from orchestrator.results import format as text
from orchestrator.results.metric import Metric
from orchestrator.results.metrics import METRICS
from orchestrator.results.records import CellRecord, void_reason
from runtime.common.statistics import estimate

MOST_BLOCKS: Final = 16
"""Blocks of the last two columns at most. Chosen: as many as the level `standard` has, which on a quiet
machine tell columns 2 % apart."""

FEW_BLOCKS: Final = 3
"""Blocks of each column for an objective that blocks do not repeat: the fewest that give an interval."""

FEWEST: Final = 2
"""Columns without which there is nothing to choose."""


class Objective(StrEnum):
    """The figure of which less is better."""

    P50 = "p50"
    P99 = "p99"
    MEMORY = "memory"
    ENERGY = "energy"
    INIT = "init"


_KEYS: Final = {
    Objective.P50: "latency_ms.p50", Objective.P99: "latency_ms.p99", Objective.INIT: "latency_ms.init",
    Objective.MEMORY: "memory_bytes.peak", Objective.ENERGY: "energy.invoke_mj",
}  # fmt: skip


def tune(
    file: Annotated[str, typer.Argument(help="A model: a path, zoo:NAME or another source.")],
    delegates: Annotated[str, typer.Option("--delegates", help="Kinds of delegates, with commas.")] = "",
    threads: Annotated[str, typer.Option("--threads", help="Counts of threads: 1,2,4.")] = "",
    precision: Annotated[str, typer.Option("--precision", help="Precisions: fp32,fp16.")] = "",
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUES", help="Another option of delegates, likewise."),
    ] = None,
    objective: Annotated[Objective, typer.Option("--objective", help="What is to be least.")] = Objective.P50,
    as_json: Json = False,
) -> int:
    """Find the best delegate and options for a model.

    All columns are measured by turns. After two blocks the better half of them goes on, after four the better
    half of these, and so on to the last two, until one of them is known to be better, or both to be alike. A
    column whose output is wrong, or that cannot run, is left out with its reason. The best is printed as an
    entry of a campaign file, with its ratio over the runner-up. init, memory and energy are known after three
    blocks, which every column gets; of energy each alone.

    Examples:
      farm tune my.tflite
      farm tune my.tflite --delegates cpu,gpu,litert --threads 1,2
      farm tune my.tflite --delegates gpu --option wait_type=passive,active
      farm tune zoo:torchvision_mobilenet_v2 --precision fp32,fp16 --objective memory
    """
    axes = {"threads": _words(threads), "precision": _words(precision)}
    given = [_axis(one) for one in option or ()]
    names = [name for name, _ in given] + [name for name, values in axes.items() if values]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(
            f"{twice} is given twice; list its values in one option, such as --option {twice}=1,2"
        )
    columns = product_of(_words(delegates), axes | dict(given))
    with open_farm() as farm:
        output.note(f"{len(columns)} columns: {', '.join(one.name for one in columns)}")
        submitted = submit_document(farm, _document(file, columns, objective), "farm tune", output.note)
        run_shown(farm, submitted)
        cells = ranked(farm.reading.cells(submitted.campaign_id), objective)
    best = next((one for one in cells if _figure(one, objective) is not None), None)
    if best is None:
        why = "; ".join(f"{_name(one, cells)}: {_why(one, objective)}" for one in cells)
        output.answer({"recommended": None, "why": why}, f"nothing to recommend: {why}", as_json)
        return SOME_FAILED
    entry = next(one for one in columns if one.name == best.delegate)
    document = yaml.safe_dump({entry.name: {"kind": entry.kind, **entry.options}}, sort_keys=False)
    ahead = over_runner_up(cells, objective)
    if as_json:
        rows = [{"column": _name(one, cells), objective.value: _figure(one, objective)} for one in cells]
        output.emit_json({"recommended": document, "over_runner_up": ahead, "columns": rows})
        return OK
    metric = _metric(objective)
    output.table(
        ("column", objective.value, "blocks", "why not"),
        [
            (
                _name(one, cells),
                text.NOTHING if (value := _figure(one, objective)) is None else metric.text(value),
                str(0 if one.measurement is None else len(one.measurement.blocks)),
                _why(one, objective),
            )
            for one in cells
        ],
        right=(objective.value, "blocks"),
    )
    output.line(f"recommended{f', {ahead}' if ahead else ''}:")
    output.line(document.rstrip())
    return OK


def product_of(kinds: Sequence[str], axes: Mapping[str, Sequence[str]]) -> list[DelegateEntry]:
    """Return a column for each combination of a delegate's options, without the axes that it does not have.

    Raises `UsageError` for an unknown delegate or value, and where there is nothing to choose from.
    """
    columns: list[DelegateEntry] = []
    asked = {name: values for name, values in axes.items() if values}
    for kind in kinds or default_kinds():
        if kind not in known_kinds():
            raise UsageError(f"unknown delegate kind {kind!r}{suggestion(kind, known_kinds())}")
        swept: dict[str, Any] = {
            name: [read_options(kind, {name: one})[name] for one in values]
            for name, values in asked.items()
            if name in declared_options(kind)
        }
        try:
            columns += expand(kind, DelegateForm(kind, swept))
        except ValueError as error:
            raise UsageError(f"{kind}: {error}") from error
    for column in columns:
        if isinstance(why := settled(column.kind, column.options), str):
            raise UsageError(f"{column.name}: {why}")
    for name in asked:
        if not any(name in column.options for column in columns):
            raise UsageError(f"none of these delegates has an option {name!r}")
    if len(columns) < FEWEST:
        raise UsageError("there is nothing to choose from; name several delegates, threads or precisions")
    return columns


def _axis(given: str) -> tuple[str, list[str]]:
    name, equals, values = given.partition("=")
    if not equals or not name.strip() or not _words(values):
        raise UsageError(f"--option {given}: expected NAME=VALUES, such as wait_type=passive,active")
    return name.strip(), _words(values)


def _words(given: str) -> list[str]:
    return list(dict.fromkeys(word.strip() for word in given.split(",") if word.strip()))


def ranked(cells: Sequence[CellRecord], objective: Objective) -> list[CellRecord]:
    """Return the cells with the least figure first: behind those that stayed in the race those that left it,
    and last those without a figure.
    """

    def place(cell: CellRecord) -> tuple[bool, bool, float]:
        value = _figure(cell, objective)
        return value is None, _left(cell), value or 0.0

    return sorted(cells, key=place)


def over_runner_up(cells: Sequence[CellRecord], objective: Objective) -> str:
    """Say how fast the first of `ranked` cells is beside the second, by the medians of the blocks that both
    were in; empty where they shared none, or where something else than the median is sought.
    """
    if objective is not Objective.P50 or any(one.reused_from for one in cells[:FEWEST]):
        return ""
    first, second = (one.measurement for one in cells[:FEWEST])
    if _figure(cells[1], objective) is None or first is None or second is None:
        return ""
    if not all(m.quality is not None and m.quality.alternating for m in (first, second)):
        return ""
    # Columns leave, and none comes later: their first blocks are the same ones.
    logs = [log(theirs.p50_ns / own.p50_ns) for own, theirs in zip(first.blocks, second.blocks, strict=False)]
    if not logs:
        return ""
    found = estimate(logs)
    many = "" if found.interval is None else f" {text.ratio_interval(found.interval)}"
    return f"{_name(cells[0], cells)} is {text.ratio(found.value)}{many} as fast as {_name(cells[1], cells)}"


def _name(cell: CellRecord, cells: Sequence[CellRecord]) -> str:
    several = len({one.device for one in cells}) > 1
    return f"{cell.delegate}@{cell.device}" if several else cell.delegate


def _left(cell: CellRecord) -> bool:
    quality = None if cell.measurement is None else cell.measurement.quality
    return quality is not None and quality.stopped == "behind"


def _metric(objective: Objective) -> Metric:
    return next(one for one in METRICS if one.key == _KEYS[objective])


def _figure(cell: CellRecord, objective: Objective) -> float | None:
    if cell.status != "done" or void_reason(cell) is not None:
        return None
    found = _metric(objective).read(cell)
    return None if found is None else float(found)


def _why(cell: CellRecord, objective: Objective) -> str:
    """Say why a column is not the best one; empty where its figure says it."""
    if (void := void_reason(cell)) is not None:
        return f"void: {void}"
    if cell.status != "done":
        return f"{cell.status}: {cell.reason.text if cell.reason else ''}"
    return _metric(objective).full_text(cell) if _figure(cell, objective) is None else ""


def _document(file: str, columns: Sequence[DelegateEntry], objective: Objective) -> str:
    measure: dict[str, Any] = {"blocks": FEW_BLOCKS}
    if objective in (Objective.P50, Objective.P99):
        # A tail needs samples, also where two medians are soon told apart.
        least = {"min": MOST_BLOCKS} if objective is Objective.P99 else {}
        measure = {"halving": objective.value, "blocks": {**least, "max": MOST_BLOCKS}}
    # A GPU's counter of energy cannot tell columns apart that take turns.
    # Any baseline makes the columns take turns in common blocks.
    together = {} if objective is Objective.ENERGY else {"baseline": {"delegate": columns[0].name}}
    return yaml.safe_dump(
        {
            "version": 1,
            "campaign": "tune",
            "models": [
                {
                    "id": Path(file).stem.removeprefix("zoo:"),
                    "source": str(Path(file).absolute()) if Path(file).is_file() else file,
                }
            ],
            # A column that left the race of another run had other ones beside it.
            "defaults": {"measure": measure, "reuse": "never"},
            "delegates": {one.name: {"kind": one.kind, **one.options} for one in columns},
            **together,
        },
        sort_keys=False,
    )
