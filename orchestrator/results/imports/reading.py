"""Recognises what another tool wrote; reads logs of `benchmark_model` and blocks of `litert-benchmark`.

The block alone names no model and no accelerator. Times are in ms.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final

from orchestrator.results.imports import evaluation_logs, result_message, table
from orchestrator.results.imports.reports import (
    LITERT_BENCHMARK,
    Figures,
    ImportedResult,
    NotReadableError,
    read_report,
)
from runtime.common import evaluation_log
from runtime.common.benchmark_log import TOOL, LogError, is_log, read_log

_TITLE: Final = "BENCHMARK RESULTS"
_ROW: Final = re.compile(r"([A-Z][a-z]+(?: (?:\([a-z0-9]+\)|[a-z]+))?):\s+(\S+)(?: ms)?(?: \((\d+) runs\))?")
_LOGGED: Final = re.compile(r"\b(Model|Accelerators|Num threads):\s+(\S.*)$")
"""Both for lines without blanks around them: no two parts that repeat can take the same characters, so that
the time grows with the length of a line, not with its square."""


def read_runs(text: str) -> Iterator[ImportedResult]:
    """Yield each run of a log. Raises `NotReadableError` where there is none, or the last is cut off."""
    try:
        for run in read_log(text):
            figures = Figures(
                run.count, run.mean, run.median, run.p95, init=run.init, first=run.first,
                memory_bytes=run.memory_bytes,
                settings={} if run.threads is None else {"threads": run.threads},
            )  # fmt: skip
            yield ImportedResult(TOOL, run.model, run.delegate, None, figures.measurement())
    except LogError as error:
        raise NotReadableError(str(error)) from error


def is_printed_block(text: str) -> bool:
    """Whether a text has such a block, whole or cut off."""
    return any(line.strip() == _TITLE for line in text.splitlines())


def read_printed_blocks(text: str) -> Iterator[ImportedResult]:
    """Yield the result of each block. Raises `NotReadableError` for one that is cut off."""
    logged: dict[str, str] = {}
    rows: dict[str, tuple[str, str | None]] | None = None
    for line in map(str.strip, text.splitlines()):
        if line == _TITLE:
            # A block whose last row, `Fully accelerated`, is missing ends at the next title.
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
        "+".join(logged.get("Accelerators", evaluation_logs.UNKNOWN).lower().split(" | ")),
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


MOST_BYTES: Final = 64 << 20
"""Bytes of a file, at most. Chosen: an AI Hub profile with a hundred thousand layers has some 20 MB; a larger
limit lets one file fill the memory."""

_EXPECTED: Final = (
    "expected a log of benchmark_model, its result file (--result_file_path), what litert-benchmark prints, "
    "its JSON (--result_json), an AI Hub profile, the list of an evaluation tool (Inference Diff, Top-k, "
    "mAP), or a table with the columns model, status and ms"
)
_CONTROL: Final = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Characters that no log has; ESC, of colours, is one that logs do have."""


_FORMS: Final[Sequence[tuple[Callable[[str], bool], Callable[[str], Iterator[ImportedResult]]]]] = (
    (is_log, read_runs),
    (result_message.is_text_message, result_message.read_text_message),
    (is_printed_block, read_printed_blocks),
    (evaluation_log.is_log, evaluation_logs.read_log),
    (table.is_table, table.read_table),
)
"""The recognition and the reader of each form of text."""


def read_results(content: bytes) -> list[ImportedResult]:
    """Return every result of a file. Raises `NotReadableError`, whose text says what was expected."""
    try:
        return _read(content)
    except (OverflowError, RecursionError) as error:
        raise NotReadableError(f"a number or a nesting that no tool writes ({error}); {_EXPECTED}") from error


def _read(content: bytes) -> list[ImportedResult]:
    if not content.strip():
        raise NotReadableError(f"the file is empty; {_EXPECTED}")
    text = _text(content)
    if text is None:
        try:
            return list(result_message.read_binary_message(content))
        except NotReadableError as error:
            raise NotReadableError(f"the file is binary ({error}); {_EXPECTED}") from error
    if text.lstrip().startswith(("{", "[")):
        try:
            return list(read_report(json.loads(text)))
        except ValueError as error:
            # A `ValueError`, too, but of `read_report`: it says what was expected.
            if isinstance(error, NotReadableError):
                raise
            raise NotReadableError(f"the JSON is damaged or cut off: {error}; {_EXPECTED}") from error
    for recognises, read in _FORMS:
        if recognises(text):
            return list(read(text))
    if text.lstrip().lower().startswith("node type,"):
        raise NotReadableError(f"an operator profile has no inference time; {_EXPECTED}")
    raise NotReadableError(f"no tool's output that is known; {_EXPECTED}")


def _text(content: bytes) -> str | None:
    """Return the text of a file; None for a binary one."""
    try:
        # `-sig`: on Windows a text may begin with a byte order mark.
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    # A binary message may happen to be valid UTF-8.
    return None if _CONTROL.search(text) else text
