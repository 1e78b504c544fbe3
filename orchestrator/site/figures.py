"""Builds the headings and figures of metrics on a page, and the footnotes on missing figures."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.results import format as text
from orchestrator.results import metrics
from orchestrator.results.metrics import P50, Metric
from orchestrator.results.records import CellRecord
from orchestrator.site.pages import Chip, Facts, Figure, MetricHead


class Footnotes:
    """Collects the reasons of missing numbers; equal reasons share a mark (a, b, …, z, aa, …)."""

    def __init__(self) -> None:
        self._marks: dict[str, str] = {}

    def mark(self, reason: str) -> str:
        """Return the mark of a reason."""
        return self._marks.setdefault(reason, _letters(len(self._marks)))

    def listed(self) -> Facts:
        """Return (mark, reason) in order of first use."""
        return tuple((mark, reason) for reason, mark in self._marks.items())


def _letters(number: int) -> str:
    head, tail = divmod(number, 26)
    return (_letters(head - 1) if head else "") + chr(ord("a") + tail)


def head(metric: Metric) -> MetricHead:
    """The heading of a metric in a table or on the method page."""
    return MetricHead(
        key=metric.key,
        label=metric.label,
        unit=metric.unit if metric.unit_in_heading else "",
        direction=metric.direction,
        help=metric.help,
        lead=metric.key == P50.key,
    )


def heads(shown: Iterable[Metric]) -> tuple[MetricHead, ...]:
    """The headings of several metrics."""
    return tuple(head(metric) for metric in shown)


def figure(metric: Metric, cell: CellRecord, notes: Footnotes) -> Figure:
    """A metric of a cell; where it is missing, a dash with the mark of the reason."""
    m = cell.measurement
    if m is None:
        return Figure(text.NOTHING)
    value = metric.read(cell)
    if value is None:
        return Figure(text.NOTHING, notes.mark(metric.why_none(m)))
    return Figure(metric.text(value), struck=metric.void_if_wrong and cell.struck_out)


def figures(shown: Iterable[Metric], cell: CellRecord, notes: Footnotes) -> tuple[Figure, ...]:
    """Several metrics of a cell, in their order."""
    return tuple(figure(metric, cell, notes) for metric in shown)


def chips(cell: CellRecord) -> tuple[Chip, ...]:
    """The figures that the matrix shows below the latency."""
    shown = (metric for metric in metrics.METRICS if metric.chip and metric.read(cell) is not None)
    return tuple(Chip(m.key, m.full_text(cell), f"{m.label}: {m.help}") for m in shown)
