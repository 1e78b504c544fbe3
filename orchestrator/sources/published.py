"""LiteRT's published table of models on the GPU of a Galaxy S24, beside own results of the same files."""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.errors import FarmError
from orchestrator.results import format as text
from orchestrator.results.records import ComparedCell, void_reason
from orchestrator.results.speedups import counted_times
from orchestrator.sources.zoo import zoo_folder, zoo_models

PUBLISHED_NOTE: Final = (
    "The published times are of the GPU of a Galaxy S24, the others of the devices that they name: they show "
    "what a model asks of a delegate, not which device is faster."
)


@dataclass(frozen=True, slots=True)
class Own:
    """The newest result of a row's model in one column. `operators`: taken of all, where told."""

    cell_id: str
    column: str
    operators: str
    p50: str


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One row: the share that LiteRT's delegate takes (`full`, `partial`) and its milliseconds, with ours.

    `shipped`: the model is in the zoo that comes with the farm; `sha256`: of its file, else empty.
    """

    model: str
    delegated: str
    ms: float
    shipped: bool
    sha256: str = ""
    own: tuple[Own, ...] = ()


def published_rows(cells: Iterable[ComparedCell] = ()) -> list[PublishedRow]:
    """Return the table's rows by name, each with the newest of these cells that measured its file.

    Raises `FarmError` where this installation has no zoo, or one of an older farm without the table.
    """
    models, table = zoo_models(), zoo_folder() / "published.csv"
    if not table.exists():
        raise FarmError(f"{table} is missing: this installation is older than its source; set it up again")
    by_file: dict[str, list[ComparedCell]] = {}
    for cell in cells:
        by_file.setdefault(cell.model_sha256, []).append(cell)
    rows = []
    with table.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            known = models.get(row["model"])
            sha256 = "" if known is None else known.sha256
            own = tuple(own_of(cell) for cell in newest_measured(by_file.get(sha256, ())))
            rows.append(
                PublishedRow(row["model"], row["delegated"], float(row["ms"]), known is not None, sha256, own)
            )
    return rows


def newest_measured(cells: Iterable[ComparedCell]) -> list[ComparedCell]:
    """Return the cell with the newest p50 that counts of each delegate on each device."""
    newest: dict[tuple[str, str], ComparedCell] = {}
    for cell in sorted(_measured(cells), key=_age):
        # Sorted by age: a newer one takes the place of an older one.
        newest[cell.delegate, cell.device] = cell
    return list(newest.values())


def _measured(cells: Iterable[ComparedCell]) -> Iterator[ComparedCell]:
    return (cell for cell in cells if void_reason(cell) is None and _p50(cell) is not None)


def _p50(cell: ComparedCell) -> float | None:
    """Return the p50 of a cell that counts, in ms; None for every other one."""
    times = counted_times(cell)
    return None if times is None else times.p50


def _age(cell: ComparedCell) -> str:
    # All are of UTC, so that their texts sort as they do.
    return "" if cell.finished_at is None else cell.finished_at.isoformat()


def own_of(cell: ComparedCell) -> Own:
    """Return what the table shows of a cell with a p50."""
    taken = None if cell.measurement is None else cell.measurement.delegation
    operators = "" if taken is None else f"{taken.delegated_ops}/{taken.total_ops}"
    return Own(
        cell.cell_id, f"{cell.delegate}@{cell.device}", operators, f"{text.milliseconds(_p50(cell))} ms"
    )
