"""Recognises the tool that wrote a file by its content, and reads the file."""

from __future__ import annotations

import json
import re
from typing import Final

from orchestrator.results.imports import benchmark_model, printed_block, result_message
from orchestrator.results.imports.reports import ImportedResult, NotReadableError, read_report

MOST_BYTES: Final = 64 << 20
"""Bytes of a file, at most. Chosen: an AI Hub profile with a hundred thousand layers has some 20 MB; a larger
limit lets one file fill the memory."""

_EXPECTED: Final = (
    "expected a log of benchmark_model, its result file (--result_file_path), what litert-benchmark prints, "
    "its JSON (--result_json), or an AI Hub profile"
)
_CONTROL: Final = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Characters that no log has; ESC, of colours, is one that logs do have."""


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
            if isinstance(error, NotReadableError):
                raise
            raise NotReadableError(f"the JSON is damaged or cut off: {error}; {_EXPECTED}") from error
    if benchmark_model.is_log(text):
        return list(benchmark_model.read_log(text))
    if result_message.is_text_message(text):
        return list(result_message.read_text_message(text))
    if printed_block.is_printed_block(text):
        return list(printed_block.read_printed_blocks(text))
    if text.lstrip().lower().startswith("node type,"):
        raise NotReadableError(f"an operator profile has no inference time; {_EXPECTED}")
    raise NotReadableError(f"no tool's output that is known; {_EXPECTED}")


def _text(content: bytes) -> str | None:
    """Return the text of a file; None for a binary one."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if _CONTROL.search(text) else text
