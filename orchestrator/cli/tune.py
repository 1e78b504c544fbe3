"""`farm tune`: the best options of a model on this farm, by successive halving in alternating blocks."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml

from orchestrator.cli import output
from orchestrator.cli.progress import run_shown
from orchestrator.cli.verb import OK, SOME_FAILED, Json, open_farm
from orchestrator.errors import UsageError
from orchestrator.farm.conducting import submit_document
from orchestrator.farm.remote.farm import AnyFarm
from orchestrator.manifest.campaign import DelegateEntry
from orchestrator.manifest.delegates import (
    DelegateForm,
    declared_options,
    default_kinds,
    expand,
    known_kinds,
    settled,
)
from orchestrator.manifest.problems import suggestion
from orchestrator.results import format as text
from orchestrator.results.metrics import METRICS
from orchestrator.results.records import CellRecord, void_reason
from orchestrator.results.speedups import stored_ratio

FIRST_BLOCKS: Final = 3
"""Blocks of each column in the first round, the fewest that give an interval; each round has twice as many of
them."""

FINALISTS: Final = 2
"""Columns of the last round: the recommended one and the runner-up."""


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
    objective: Annotated[Objective, typer.Option("--objective", help="What is to be least.")] = Objective.P50,
    as_json: Json = False,
) -> int:
    """Find the best delegate and options for a model.

    All columns are measured in a few blocks that take turns; the better half of them in twice as many, and so
    on to the last two. A column whose output is wrong, or that cannot run, is left out with its reason. The
    best is printed as an entry of a campaign file, with its ratio over the runner-up.

    Examples:
      farm tune my.tflite
      farm tune my.tflite --delegates cpu,gpu,litert --threads 1,2
      farm tune zoo:torchvision_mobilenet_v2 --precision fp32,fp16 --objective memory
    """
    columns = product_of(_words(delegates), {"threads": _words(threads), "precision": _words(precision)})
    with open_farm() as farm:
        cells, last = _halved(farm, file, columns, objective)
    best = last[0] if last else None
    if best is None:
        why = "; ".join(f"{one.delegate}: {_why(one)}" for one in cells)
        output.answer({"recommended": None, "why": why}, f"nothing to recommend: {why}", as_json)
        return SOME_FAILED
    entry = next(one for one in columns if one.name == best.delegate)
    document = yaml.safe_dump({entry.name: {"kind": entry.kind, **entry.options}}, sort_keys=False)
    ahead = _ahead(last)
    if as_json:
        rows = [{"column": one.delegate, objective.value: _figure(one, objective)} for one in cells]
        output.emit_json({"recommended": document, "over_runner_up": ahead, "columns": rows})
        return OK
    metric = next(one for one in METRICS if one.key == _KEYS[objective])
    output.table(
        ("column", objective.value, "blocks", "why not"),
        [
            (
                one.delegate,
                text.NOTHING if (value := _figure(one, objective)) is None else metric.text(value),
                str(0 if one.measurement is None else len(one.measurement.blocks)),
                _why(one),
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
    for kind in kinds or default_kinds():
        if kind not in known_kinds():
            raise UsageError(f"unknown delegate kind {kind!r}{suggestion(kind, known_kinds())}")
        declared = declared_options(kind)
        swept: dict[str, Any] = {}
        for name, values in axes.items():
            if values and name in declared:
                swept[name] = [_value(kind, name, one) for one in values]
        for column in expand(kind, DelegateForm(kind, swept)):
            if isinstance(why := settled(kind, column.options), str):
                raise UsageError(f"{column.name}: {why}")
            columns.append(column)
    if len(columns) < FINALISTS:
        raise UsageError("there is nothing to choose from; name several delegates, threads or precisions")
    return columns


def _value(kind: str, name: str, word: str) -> str | int:
    option = declared_options(kind)[name]
    if option.value_type is int and word.isdecimal():
        return int(word)
    if word not in option.choices:
        raise UsageError(f"--{name} {word}: {kind} takes {', '.join(option.choices) or 'whole numbers'}")
    return word


def _words(given: str) -> list[str]:
    return list(dict.fromkeys(word.strip() for word in given.split(",") if word.strip()))


def _halved(
    farm: AnyFarm, file: str, columns: Sequence[DelegateEntry], objective: Objective
) -> tuple[list[CellRecord], list[CellRecord]]:
    """Return the newest cell of each column, the best first, and those of the last round, likewise."""
    known: dict[str, CellRecord] = {}
    left, blocks = list(columns), FIRST_BLOCKS
    while True:
        output.note(f"{len(left)} columns, {blocks} blocks each: {', '.join(one.name for one in left)}")
        document = _document(file, left, blocks)
        submitted = submit_document(farm, document, "farm tune", output.note)
        run_shown(farm, submitted)
        cells = ranked(farm.reading.cells(submitted.campaign_id), objective)
        for cell in cells:
            known[cell.delegate] = cell
        able = [cell.delegate for cell in cells if _figure(cell, objective) is not None]
        if len(left) <= FINALISTS or len(able) < FINALISTS:
            last = [known[name] for name in able]
            others = [cell for cell in ranked(list(known.values()), objective) if cell.delegate not in able]
            return [*last, *others], last
        by_name = {one.name: one for one in left}
        # The leader is the baseline, and so comes first.
        left = [by_name[name] for name in able[: max(FINALISTS, ceil(len(left) / 2))]]
        blocks *= 2


def ranked(cells: Sequence[CellRecord], objective: Objective) -> list[CellRecord]:
    """Return the cells with the least figure first; those without one last."""

    def place(cell: CellRecord) -> tuple[bool, float]:
        value = _figure(cell, objective)
        return value is None, value or 0.0

    return sorted(cells, key=place)


def _figure(cell: CellRecord, objective: Objective) -> float | None:
    if cell.status != "done" or void_reason(cell) is not None:
        return None
    found = next(one for one in METRICS if one.key == _KEYS[objective]).read(cell)
    return None if found is None else float(found)


def _why(cell: CellRecord) -> str:
    if (void := void_reason(cell)) is not None:
        return f"void: {void}"
    return "" if cell.status == "done" else f"{cell.status}: {cell.reason.text if cell.reason else ''}"


def _document(file: str, columns: Sequence[DelegateEntry], blocks: int) -> str:
    source = str(Path(file).absolute()) if Path(file).is_file() else file
    return yaml.safe_dump(
        {
            "version": 1,
            "campaign": "tune",
            "models": [{"id": Path(file).stem.removeprefix("zoo:"), "source": source}],
            "defaults": {"measure": {"blocks": blocks}},
            "delegates": {one.name: {"kind": one.kind, **one.options} for one in columns},
            "baseline": {"delegate": columns[0].name},
        },
        sort_keys=False,
    )


def _ahead(last: Sequence[CellRecord]) -> str:
    for cell in last:
        ratio = stored_ratio(cell)
        if ratio is not None and ratio.ci95 is not None:
            many = text.ratio_interval(ratio.ci95)
            return f"{cell.delegate} is {text.ratio(ratio.median)} {many} as fast as {ratio.against}"
    return ""
