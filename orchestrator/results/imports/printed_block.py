"""Reads the output of `litert-benchmark`: the block of its results, and lines of its log if there are any.

The block alone names no model and no accelerator. Times are in ms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from orchestrator.results.imports.reports import LITERT_BENCHMARK, Figures, ImportedResult, NotReadableError

_TITLE: Final = "BENCHMARK RESULTS"
_ROW: Final = re.compile(r"([A-Z][a-z]+(?: (?:\([a-z0-9]+\)|[a-z]+))?):\s+(\S+)(?: ms)?(?: \((\d+) runs\))?")
_LOGGED: Final = re.compile(r"\b(Model|Accelerators|Num threads):\s+(\S.*)$")
"""Both for lines without blanks around them: no two parts that repeat can take the same characters, so that
the time grows with the length of a line, not with its square."""

_UNKNOWN: Final = "unknown"


def is_printed_block(text: str) -> bool:
    """Whether a text has such a block, whole or cut off."""
    return any(line.strip() == _TITLE for line in text.splitlines())


def read_printed_blocks(text: str) -> Iterator[ImportedResult]:
    """Yield the result of each block. Raises `NotReadableError` for one that is cut off."""
    logged: dict[str, str] = {}
    rows: dict[str, tuple[str, str | None]] | None = None
    for line in map(str.strip, text.splitlines()):
        if line == _TITLE:
            if rows is not None:
                yield _result(rows, logged)
            rows = {}
        elif rows is not None and (found := _ROW.match(line)):
            rows[found[1]] = found[2], found[3]
            if found[1] == "Fully accelerated":
                yield _result(rows, logged)
                rows, logged = None, {}
        elif found := _LOGGED.search(line):
            logged[found[1]] = found[2]
    if rows is not None:
        yield _result(rows, logged)


def _result(rows: dict[str, tuple[str, str | None]], logged: dict[str, str]) -> ImportedResult:
    average, runs = rows.get("Inference (avg)", ("", None))
    if runs is None or "Inference (p95)" not in rows:
        raise NotReadableError(
            "the block of litert-benchmark is cut off: expected its rows from 'Inference (avg): ... ms (50 "
            "runs)' to 'Inference (p95): ... ms'"
        )
    settings = {"fully_accelerated": rows["Fully accelerated"][0]} if "Fully accelerated" in rows else {}
    if "Num threads" in logged:
        settings["threads"] = logged["Num threads"]
    figures = Figures(
        int(runs), _number(average), _row(rows, "Inference (median)"), _row(rows, "Inference (p95)"),
        init=_row(rows, "Model initialization"), first=_row(rows, "Warmup (first)"), settings=settings,
    )  # fmt: skip
    model = logged.get("Model")
    return ImportedResult(
        LITERT_BENCHMARK,
        None if model is None else PurePosixPath(model.replace("\\", "/")).name,
        "+".join(logged.get("Accelerators", _UNKNOWN).lower().split(" | ")),
        None,
        figures.measurement(),
    )


def _row(rows: dict[str, tuple[str, str | None]], name: str) -> float | None:
    return _number(rows[name][0]) if name in rows else None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise NotReadableError(f"a time of the block is {text!r}, not a number of ms") from error
