"""The registry of a cell's figures: the name of each, how it is read and written, and its meaning.

The comparison table, `farm show`, CSV, JSON, the pages and docs/metrics.md read this registry, so that a new
figure is a field of the wire's `Measurement`, the code that measures it, and one entry here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from agent.wire.messages import Measurement
from orchestrator.results import format as text
from orchestrator.results.records import CellRecord

Better: TypeAlias = Literal["lower", "higher", "none"]
"""Which values are better; `none` for a count that is neither good nor bad."""

Section: TypeAlias = Literal["latency", "resources", "output"]
"""What a figure describes: the time of an invoke, what a run needs besides, or how right its output is."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a cell.

    `key` is its path in the results format (`latency_ms.p50`); `unit` is that of the exported value.
    `read` returns the value, None where the cell has none; `why_none` then gives the reason. `text` writes a
    value, without the unit where `unit_in_heading`: tables name that unit once, in their heading.
    """

    key: str
    label: str
    unit: str
    better: Better
    section: Section
    help: str
    read: Callable[[CellRecord], Any]
    text: Callable[[Any], str]
    why_none: Callable[[Measurement], str] = lambda _: "not recorded"
    unit_in_heading: bool = False
    parts: tuple[str, ...] = ()
    """Names of the members of a value that is a tuple; each is a column of its own in CSV."""
    void_if_wrong: bool = False
    """Whether a wrong output voids the figure: a fast wrong answer is evidence and never exported."""
    own_line: bool = True
    """Whether pages and `farm show` give it a line; False where the sentence on labelled data
    (`format.labelled`) contains it."""
    chip: bool = False
    """Whether the site's matrix shows it below the latency of each cell."""
    table: Callable[[Measurement], str] | None = None
    """Writes its line below the latency in the comparison table; None: no line."""

    @property
    def direction(self) -> str:
        """`lower is better`, `higher is better`, or empty where neither is."""
        return "" if self.better == "none" else f"{self.better} is better"

    @property
    def columns(self) -> tuple[str, ...]:
        """Its columns in CSV: the key, or one for each part of a tuple."""
        return tuple(f"{self.key}.{part}" for part in self.parts) or (self.key,)

    def exported(self, cell: CellRecord) -> Any:
        """Return the value for a data file, None where a wrong output voids it."""
        return None if self.void_if_wrong and cell.struck_out else self.read(cell)

    def short_text(self, cell: CellRecord) -> str:
        """Write the value, a dash where it is missing."""
        value = self.read(cell)
        return text.NOTHING if value is None else self.text(value)

    def full_text(self, cell: CellRecord) -> str:
        """Write the value with its unit, or `none: ` and the reason."""
        value = self.read(cell)
        if value is None:
            why = "nothing was measured" if cell.measurement is None else self.why_none(cell.measurement)
            return f"none: {why}"
        return f"{self.text(value)} {self.unit}" if self.unit_in_heading else self.text(value)


def _latency(
    name: str, label: str, meaning: str, write: Callable[[Any], str] = text.milliseconds, **more: Any
) -> Metric:
    """A field of the wire's `Latency`."""

    def read(cell: CellRecord) -> Any:
        return None if cell.measurement is None else getattr(cell.measurement.latency_ms, name)

    return Metric(
        key=f"latency_ms.{name}",
        label=label,
        unit="ms",
        better="lower",
        section="latency",
        help=meaning,
        read=read,
        text=write,
        why_none=lambda m: m.latency_ms.missing.get(name, "not recorded"),
        unit_in_heading=True,
        void_if_wrong=True,
        **more,
    )


def _accuracy(
    name: str, better: Better, unit: str, meaning: str, write: Callable[[Any], str] = text.error
) -> Metric:
    """A field of the wire's `Accuracy`."""

    def read(cell: CellRecord) -> Any:
        return None if cell.measurement is None else getattr(cell.measurement.accuracy, name)

    return Metric(
        f"accuracy.{name}", name.replace("_", " "), unit, better, "output", meaning, read, write,
        why_none=lambda m: m.accuracy.note,
    )  # fmt: skip


def _labelled(
    name: str,
    label: str,
    unit: str,
    better: Better,
    meaning: str,
    write: Callable[[Any], str] = text.count,
    table: Callable[[Measurement], str] | None = None,
) -> Metric:
    """A field of the wire's `LabelledScore`."""

    def read(cell: CellRecord) -> Any:
        score = None if cell.measurement is None else cell.measurement.labelled
        return None if score is None else getattr(score, name)

    return Metric(
        f"labelled.{name}", label, unit, better, "output", meaning, read, write, own_line=False, table=table
    )  # fmt: skip


def _share_in_table(m: Measurement) -> str:
    return "" if m.labelled is None else f"{m.labelled.metric} {text.share(m.labelled.share)}"


P50 = _latency(
    "p50",
    "p50",
    "Median of the timed invokes, end to end: from the inputs in host memory to all outputs readable in host "
    "memory. Copies to and from a device are included. It is the geometric mean, over the processes, of each "
    "one's percentile (nearest rank).",
)
CI95 = _latency(
    "ci95",
    "95 % interval",
    "The 95 % interval of p50, low and high: a t interval over the logarithms of the processes' "
    "medians. With too few processes there is none.",
    text.interval,
    parts=("low", "high"),
)
SAMPLES = Metric(
    "samples",
    "samples",
    "1",
    "none",
    "latency",
    "Timed invokes of all processes together, without the warm-up.",
    read=lambda cell: 0 if cell.measurement is None else cell.measurement.samples,
    text=text.count,
)
PEAK_MEMORY = Metric(
    "memory_bytes.peak",
    "peak memory",
    "bytes",
    "lower",
    "resources",
    "Growth of the process's peak resident memory (VmHWM) from just before the model is loaded: the "
    "model, its tensors and the delegate, without the interpreter of the language. The largest of the timed "
    "processes. Memory of a discrete GPU is not in it.",
    read=lambda cell: cell.memory_peak_bytes,
    text=text.byte_count,
    why_none=lambda _: "nothing was run",
    chip=True,
)

PEAK_MEMORY_COLD = Metric(
    "memory_bytes.peak_cold",
    "peak memory, cold",
    "bytes",
    "lower",
    "resources",
    "The same of the process that finds empty caches, and compiles what the others find.",
    read=lambda cell: cell.memory_peak_cold_bytes,
    text=text.byte_count,
    why_none=lambda _: "not recorded",
)

METRICS: tuple[Metric, ...] = (
    _latency(
        "init",
        "init, cold",
        "From just before the delegate is made and the model is loaded until the model is ready to "
        "invoke: tensors allocated, kernels compiled and tuned. Measured in the process that finds "
        "every program cache empty.",
    ),
    _latency(
        "init_warm",
        "init, warm",
        "The same in the processes that find the caches filled by the first one; their median.",
    ),
    _latency(
        "first",
        "first",
        "The first invoke, completed, of the process that finds empty caches. It includes whatever the "
        "delegate puts off until then, and is part of neither init nor the steady state.",
    ),
    P50,
    CI95,
    _latency("p90", "p90", "The 90th percentile of the equal-weight mixture of the processes; at least p50."),
    _latency("p99", "p99", "The 99th percentile of the equal-weight mixture of the processes; at least p50."),
    _latency("mean", "mean", "Mean over the processes of each one's mean of the same invokes."),
    _latency(
        "first_warm",
        "first, warm",
        "The same in the processes that find the caches filled; their median.",
    ),
    _latency("p95", "p95", "The 95th percentile of the equal-weight mixture of the processes; at least p50."),
    *(
        _latency(
            f"{tail}_ci95",
            f"95 % interval of {tail}",
            f"The 95 % interval of {tail}, low and high: a bootstrap over whole processes, from ten on.",
            text.interval,
            parts=("low", "high"),
        )
        for tail in ("p90", "p99")
    ),
    SAMPLES,
    PEAK_MEMORY,
    PEAK_MEMORY_COLD,
    _accuracy(
        "max_abs",
        "lower",
        "unit of the output",
        "Largest absolute difference between an output y and its reference r, over all outputs, input "
        "sets and processes.",
    ),
    _accuracy("rel_l2", "lower", "1", "Relative error ‖y − r‖ / ‖r‖ of the output that is furthest off."),  # noqa: RUF001  # minus sign
    _accuracy(
        "cosine",
        "higher",
        "1",
        "Cosine between output and reference, of the output where it is smallest.",
        text.cosine,
    ),
    _accuracy(
        "mean_abs",
        "lower",
        "unit of the output",
        "Mean absolute difference between an output and its reference, of the output where it is largest.",
    ),
    _accuracy(
        "top1",
        "higher",
        "1",
        "Share of an output's rows (its last axis) whose largest value is at the reference's place, of the "
        "output where it is smallest.",
        text.optional_share,
    ),
    _accuracy(
        "peer_rel_l2",
        "none",
        "1",
        "Relative error of LiteRT's XNNPACK on the same inputs against the same reference.",
    ),
    _labelled(
        "samples", "labelled samples", "1", "none", "Samples of known class that the model was run on."
    ),
    _labelled(
        "right",
        "right answers",
        "1",
        "higher",
        "Samples whose class is the first answer (`top1`) or among the first five (`top5`).",
    ),
    _labelled(
        "share",
        "share right",
        "1",
        "higher",
        "Right answers divided by labelled samples.",
        text.share,
        _share_in_table,
    ),
)
"""Every figure, in the order in which tables and pages show them."""


def in_section(*sections: Section) -> tuple[Metric, ...]:
    """Return the metrics of these sections that have a line of their own, in the registry's order."""
    return tuple(metric for metric in METRICS if metric.own_line and metric.section in sections)
