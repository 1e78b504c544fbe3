"""Reads the output of `benchmark_model`, LiteRT's or this project's.

One log may hold several runs. A run is complete with its line `Inference timings in us: ...`; the line of
statistics before it has the median and the 95th percentile, in releases that print them. Times are in us.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, Literal, cast

TOOL: Final = "benchmark_model"

Extent = Literal["completely", "partially", "not"]

_NUMBER: Final = r"([0-9]{1,18}(?:\.[0-9]*)?(?:e[+-]?[0-9]{1,2})?)"
"""Bounded: any of them is a finite float."""
_MEGABYTES: Final = r"([0-9]+(?:\.[0-9]*)?)"
_SUMMARY: Final = re.compile(
    rf"Inference timings in us: Init: {_NUMBER}, First inference: {_NUMBER}, "
    rf"Warmup \(avg\): {_NUMBER}, Inference \(avg\): {_NUMBER}$"
)
_STATISTICS: Final = re.compile(r"(?:^|(?<=[^)]:)|(?<=[^)]: ))count=(\d{1,15})(?: (.*))?$")
"""Not `Timings (microseconds): count=...` and `Memory (bytes): count=...`, which are of a profile."""

_SAME: Final = "(all same)"
"""Stands behind the one time of a line whose times are equal, in place of all other statistics."""

_GRAPH: Final = re.compile(r"(?:\bGraph: \[(?P<echo>[^\[\]]+)\]|\bLoaded model (?P<loaded>\S.*)$)")
_THREADS: Final = re.compile(r"\b(?:Num|#) ?threads(?: used for CPU inference)?: \[(\d+)\]", re.IGNORECASE)
_BEGINS: Final = re.compile(
    r"STARTING!|Log parameter values|Loaded model |Graph: \[|Running benchmark for at least"
)
_APPLIED: Final = re.compile(r"Explicitly applied (\S+) delegate")
_EXTENT: Final = re.compile(
    r"(?:Explicitly applied|Though) (\S+) delegate\b.* will (?:be )?(completely|partially|not)\b"
)
_CREATED: Final = re.compile(r"Created TensorFlow Lite (?:delegate for (\S+?)|(XNNPACK) delegate)")
_UNKNOWN_FLAGS: Final = re.compile(r"Unconsumed cmdline flags: (.*)$")
_FOOTPRINT: Final = re.compile(
    rf"Memory footprint delta from the start of the tool \(MB\): init=\S+ overall={_MEGABYTES}"
)
_PEAK: Final = re.compile(rf"Overall peak memory footprint \(MB\) via periodic monitoring: {_MEGABYTES}")
_BYTES_PER_MB: Final = 1 << 20
"""Bytes of an MB in its lines on memory: it divides kB of 1024 bytes by 1024. Another value would be another
unit."""

_MOST_MB: Final = 1e9
"""MB, a petabyte: chosen above any machine's memory. More bytes would be no whole number of 64 bits."""


class LogError(ValueError):
    """A text is no log of the tool, or is cut off; the error says what was expected."""


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """One run of the tool: times in ms, memory in bytes. None: the log does not have it.

    `delegate`: the last one that the tool names, `cpu` where it names none. `extents`: by delegate, how much
    of the graph the tool says that it executes. `unknown_flags`: those that the tool says it does not know.
    """

    model: str | None
    threads: str | None
    delegate: str
    extents: Mapping[str, Extent]
    unknown_flags: str
    count: int
    init: float
    first: float
    mean: float
    median: float | None
    p95: float | None
    memory_bytes: int


def is_log(text: str) -> bool:
    """Whether a text is a log of the tool, whole or cut off."""
    return "Inference timings in us" in text or "Log parameter values verbosely" in text or (
        "Running benchmark for at least" in text
    )  # fmt: skip


def read_log(text: str) -> Iterator[LoggedRun]:
    """Yield each run of a log. Raises `LogError` where there is none, or the last is cut off."""
    run = _Run()
    found = 0
    for line in map(str.rstrip, text.splitlines()):
        # What follows the summary is of the same run, such as its memory, until another one begins.
        if run.summary is not None and (_BEGINS.search(line) or _STATISTICS.search(line)):
            yield run.result()
            found += 1
            run = _Run(run.model)
        run.take(line)
    if run.summary is None:
        raise LogError(
            f"{found} whole runs and the beginning of another; a run of benchmark_model ends with 'Inference "
            "timings in us: Init: ..., Inference (avg): ...'"
        )
    yield run.result()


class _Run:
    """The figures of a run in the lines read so far."""

    def __init__(self, model: str | None = None) -> None:
        self.model = model
        self.threads: str | None = None
        self.delegate = "cpu"
        self.extents: dict[str, Extent] = {}
        self.unknown_flags = ""
        self.statistics: dict[str, str] = {}
        self.count = 0
        self.memory_mb = 0.0
        self.summary: tuple[float, ...] | None = None

    def take(self, line: str) -> None:
        """Note what a line says."""
        if found := _SUMMARY.search(line):
            self.summary = tuple(float(part) for part in found.groups())
        elif found := _STATISTICS.search(line):
            # The last one before the summary is that of the timed runs.
            self.count = int(found[1])
            self.statistics = _statistics(found[2] or "")
        elif found := _GRAPH.search(line):
            self.model = PurePosixPath((found["echo"] or found["loaded"]).replace("\\", "/")).name
        elif found := _THREADS.search(line):
            self.threads = found[1]
        elif found := _UNKNOWN_FLAGS.search(line):
            self.unknown_flags = found[1]
        elif found := _PEAK.search(line) or _FOOTPRINT.search(line):
            self.memory_mb = max(self.memory_mb, float(found[1]))
        else:
            self._take_delegate(line)

    def _take_delegate(self, line: str) -> None:
        if found := _APPLIED.search(line) or _CREATED.search(line):
            self.delegate = next(part for part in found.groups() if part).strip(".").lower()
        if found := _EXTENT.search(line):
            self.extents[found[1].lower()] = cast(Extent, found[2])

    def result(self) -> LoggedRun:
        """Return the run, once it is complete."""
        # `read_log` asks behind the summary only.
        assert self.summary is not None
        init, first, _, mean = (value / 1e3 for value in self.summary)
        if self.count < 1:
            raise LogError("no line of statistics 'count=50 first=... avg=... std=...' before the summary")
        if self.memory_mb > _MOST_MB:
            raise LogError(f"a memory footprint of {self.memory_mb:g} MB, which no machine has")
        return LoggedRun(
            model=self.model,
            threads=self.threads,
            delegate=self.delegate,
            extents=self.extents,
            unknown_flags=self.unknown_flags,
            count=self.count,
            init=init,
            first=first,
            mean=mean,
            median=_milliseconds(self.statistics.get("median")),
            p95=_milliseconds(self.statistics.get("p95")),
            memory_bytes=round(self.memory_mb * _BYTES_PER_MB),
        )


def _statistics(text: str) -> dict[str, str]:
    found = dict(part.split("=", 1) for part in text.replace(_SAME, "").split() if "=" in part)
    return dict.fromkeys(("median", "p95"), found["curr"]) if _SAME in text and "curr" in found else found


def _milliseconds(microseconds: str | None) -> float | None:
    number = re.fullmatch(_NUMBER, microseconds or "")
    return None if number is None else float(number[1]) / 1e3
