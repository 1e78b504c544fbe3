"""Reads tables with a column each for model, status and ms, as compatibility lists have them.

CSV (with commas, semicolons or tabs) and Markdown. The columns stand in any order and may be followed by
units, as `ms (GPU)`; `delegate` and `device` are read too, others are not.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from orchestrator.results.imports.reports import Figures, ImportedResult, NotReadableError

TOOL: Final = "table"

# Every repetition is bounded: a stranger's file must not make the matching slow.
_MS: Final = re.compile(r"(?:.{0,60}[ (_])?ms\b.{0,60}")
_TIME: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?) ?(?:ms)?")
_RULE: Final = re.compile(r"[ |:-]{1,10000}")
_NEEDED: Final = ("model", "status", "ms")


def is_table(text: str) -> bool:
    """Whether the first line of a text is the heading of such a table."""
    rows = _rows("\n".join(text.lstrip().splitlines()[:1]))
    return bool(rows) and _columns(rows[0]).keys() >= set(_NEEDED)


def read_table(text: str) -> Iterator[ImportedResult]:
    """Yield the result of each row; one without a time is a model that did not run, with its status.

    Raises `NotReadableError` for a row of another length, and for what is no time in ms.
    """
    heading, *rows = _rows(text)
    columns = _columns(heading)
    if not rows:
        raise NotReadableError("the table has no rows below its heading")
    for number, row in enumerate(rows, 2):
        if len(row) != len(heading):
            raise NotReadableError(
                f"row {number} of the table has {len(row)} cells, its heading {len(heading)}"
            )
        cells = {name: row[index].strip() for name, index in columns.items()}
        if not cells["model"] or not cells["status"]:
            raise NotReadableError(f"row {number} of the table has no model or no status")
        yield _result(cells, number)


def _result(cells: Mapping[str, str], number: int) -> ImportedResult:
    model, status, delegate = cells["model"], cells["status"], cells.get("delegate") or "unknown"
    device = cells.get("device") or None
    # An en dash and an em dash, as published tables have them.
    if cells["ms"].lower() in {"", "-", "\u2013", "\u2014", "n/a"}:
        return ImportedResult(TOOL, model, delegate, device, None, status)
    found = _TIME.fullmatch(cells["ms"])
    if found is None:
        raise NotReadableError(f"row {number} of the table: {cells['ms'][:40]!r} is not a time in ms")
    figures = Figures(1, float(found[1]), settings={"status": status})
    return ImportedResult(TOOL, model, delegate, device, figures.measurement())


def _columns(heading: Sequence[str]) -> dict[str, int]:
    """Return the place of each column that is read; the first of equal names counts."""
    found: dict[str, int] = {}
    for index, cell in enumerate(heading):
        name = cell.strip().lower()
        name = "ms" if _MS.fullmatch(name) else name
        if name in (*_NEEDED, "delegate", "device"):
            found.setdefault(name, index)
    return found


def _rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return []
    if lines[0].lstrip().startswith("|"):
        return [line.strip().strip("|").split("|") for line in lines if not _RULE.fullmatch(line.strip())]
    # By the heading alone: texts below it may contain any of them.
    separator = max(",;\t", key=lines[0].count)
    try:
        return list(csv.reader(io.StringIO("\n".join(lines)), delimiter=separator))
    except csv.Error as error:
        raise NotReadableError(f"the table is damaged: {error}") from error
