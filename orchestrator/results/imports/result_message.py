"""Reads the message `BenchmarkResult` that `benchmark_model --result_file_path` writes: binary, or as text.

The binary form is Protocol Buffers' wire format; fields that are not named here are skipped, because newer
releases add some.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from typing import Final

from orchestrator.results.imports.reports import Figures, ImportedResult, NotReadableError
from runtime.common.benchmark_log import TOOL

_NAME: Final = 1
"""Number of the field `name`; LiteRT's file benchmark_result.proto gives this and all others."""

_NUMBERS: Final[Mapping[int, Mapping[int, str]]] = {
    2: {1: "avg_ms", 5: "median_ms", 7: "p95_ms", 8: "init_ms", 9: "first_inference_ms"},
    3: {2: "overall_footprint_kb", 3: "peak_mem_mb"},
    4: {2: "num_runs"},
}
"""By number: the parts for latency, memory and the rest, and in each the fields that are read."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Wire types: how a field's value is written."""

_MOST_BITS: Final = 64
"""Bits of the longest whole number. A longer one is no message."""

_FIELD: Final = re.compile(r"\b([a-z0-9_]+)\s*:\s*(\"[^\"]*\"|[-+0-9.e]+)")


def is_text_message(text: str) -> bool:
    """Whether a text is the text form of the message."""
    return "latency_metrics" in text and "{" in text and not text.lstrip().startswith("{")


def read_text_message(text: str) -> Iterator[ImportedResult]:
    """Yield the result of a text message. Raises `NotReadableError` if it is cut off or lacks times."""
    if text.count("{") != text.count("}"):
        raise NotReadableError("the message is cut off: its braces do not match")
    fields = {name: value.strip('"') for name, value in _FIELD.findall(text)}
    try:
        numbers = {name: float(value) for name, value in fields.items() if name != "name"}
    except ValueError as error:
        raise NotReadableError(f"a field of the message is no number: {error}") from error
    yield _result(fields.get("name"), numbers)


def read_binary_message(content: bytes) -> Iterator[ImportedResult]:
    """Yield the result of a binary message. Raises `NotReadableError` for another file, or a cut one."""
    name: str | None = None
    numbers: dict[str, float] = {}
    for field, value in _fields(content):
        if field == _NAME and isinstance(value, bytes):
            name = value.decode("utf-8", "replace")
        elif field in _NUMBERS and isinstance(value, bytes):
            known = _NUMBERS[field]
            found = {known[number]: inner for number, inner in _fields(value) if number in known}
            numbers |= {key: inner for key, inner in found.items() if not isinstance(inner, bytes)}
    yield _result(name, numbers)


def _result(name: str | None, numbers: Mapping[str, float]) -> ImportedResult:
    if "avg_ms" not in numbers or "num_runs" not in numbers:
        raise NotReadableError("expected latency_metrics { avg_ms: ... } and misc_metrics { num_runs: ... }")
    memory_kb = max(numbers.get("overall_footprint_kb", 0.0), 1024.0 * numbers.get("peak_mem_mb", 0.0))
    figures = Figures(
        int(numbers["num_runs"]), numbers["avg_ms"], numbers.get("median_ms"), numbers.get("p95_ms"),
        init=numbers.get("init_ms"), first=numbers.get("first_inference_ms"),
        memory_bytes=round(memory_kb * 1024),
    )  # fmt: skip
    return ImportedResult(TOOL, name, "cpu", None, figures.measurement())


def _fields(content: bytes) -> Iterator[tuple[int, float | bytes]]:
    """Yield number and value of each field. Raises `NotReadableError` if the bytes are no message."""
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        # A tag is the field's number, with the wire type in its low three bits.
        field, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(content, at)
            yield field, value
            continue
        if kind == _BYTES:
            size, at = _varint(content, at)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise NotReadableError("no message: a field of an unknown kind")
        part = content[at : at + size]
        at += size
        if len(part) < size:
            raise NotReadableError("the message is cut off")
        yield field, part if kind == _BYTES else struct.unpack("<f" if size == 4 else "<d", part)[0]


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return a whole number, and the position of the next byte."""
    value = 0
    for shift in range(0, _MOST_BITS, 7):
        if at >= len(content):
            raise NotReadableError("the message is cut off")
        # Seven bits a byte, the lowest first; the eighth says that another byte follows.
        value |= (content[at] & 127) << shift
        at += 1
        if content[at - 1] < 128:
            return value, at
    raise NotReadableError("no message: a number of more than 64 bits")
