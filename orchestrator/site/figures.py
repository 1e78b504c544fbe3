"""Builds headings, figures and settings of a page; a missing figure has a footnote."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from orchestrator.results import format as text
from orchestrator.results import metrics
from orchestrator.results.metric import Metric
from orchestrator.results.metrics import P50
from orchestrator.results.reasons import Footnotes
from orchestrator.results.records import CellRecord
from orchestrator.site.pages import Chip, Facts, Figure, MetricHead


def head(metric: Metric) -> MetricHead:
    """Return the heading of a metric in a table or on the method page."""
    return MetricHead(
        key=metric.key,
        label=metric.label,
        unit=metric.unit if metric.unit_in_heading else "",
        direction=metric.direction,
        help=metric.help,
        lead=metric.key == P50.key,
    )


def heads(shown: Iterable[Metric]) -> tuple[MetricHead, ...]:
    """Return the headings of several metrics."""
    return tuple(head(metric) for metric in shown)


def figure(metric: Metric, cell: CellRecord, notes: Footnotes) -> Figure:
    """Return a metric of a cell; if it is missing, a dash with the mark of the reason."""
    m = cell.measurement
    if m is None:
        return Figure(text.NOTHING)
    value = metric.read(cell)
    if value is None:
        return Figure(text.NOTHING, notes.mark(metric.why_none(m)))
    return Figure(metric.text(value), struck=metric.void_if_wrong and cell.struck_out)


def with_interval(metric: Metric, cell: CellRecord, notes: Footnotes) -> Figure:
    """Return a metric of a cell together with its interval, if the registry has one for it.

    A missing interval is a dash with its mark; below a missing figure there is none.
    """
    found = figure(metric, cell, notes)
    own = next((one for one in metrics.METRICS if one.interval_of == metric.key), None)
    if own is None or metric.read(cell) is None:
        return found
    interval = figure(own, cell, notes)
    return replace(found, interval=interval.text, interval_note=interval.note)


def figures(shown: Iterable[Metric], cell: CellRecord, notes: Footnotes) -> tuple[Figure, ...]:
    """Several metrics of a cell, in their order."""
    return tuple(figure(metric, cell, notes) for metric in shown)


def chips(cell: CellRecord) -> tuple[Chip, ...]:
    """Return the figures that the matrix shows below the latency."""
    shown = (metric for metric in metrics.METRICS if metric.chip and metric.read(cell) is not None)
    return tuple(Chip(m.key, m.full_text(cell), f"{m.label}: {m.help}") for m in shown)


def setting_rows(settings: Mapping[str, str]) -> Facts:
    """Sorted settings; one that holds a JSON object is shown field by field."""
    rows: list[tuple[str, str]] = []
    for name, value in sorted(settings.items()):
        fields = [(f"{name}: {key}", str(entry)) for key, entry in json_object(value).items()]
        rows += fields or [(name, value)]
    return tuple(rows)


def json_object(value: str) -> dict[str, object]:
    """Parse the JSON object in a text; empty for any other text."""
    try:
        loaded = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return loaded if isinstance(loaded, dict) else {}
