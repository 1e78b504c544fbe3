"""Gathers what the home page shows of a model when somebody chooses another figure, baseline or version.

It lies beside the page, in a script for each version, which is read once something is chosen: most readers
want the newest medians alone.
"""

import json
from collections.abc import Iterable, Sequence
from types import SimpleNamespace as View
from typing import Any, Final

from orchestrator.results.cost_figures import PEAK_MEMORY
from orchestrator.results.metrics import METRICS
from orchestrator.results.records import ComparedCell
from orchestrator.site.archive import Archive
from orchestrator.site.cell_view import brief_view, delegate_name
from orchestrator.site.series import Point, Series

NEWEST: Final = ""
"""The version of the newest results, whatever they are of."""

VERSIONS: Final = 20
"""Versions that can be chosen, the newest. Chosen: more are no list to choose from, and a model's own page
has every one."""

_TIMES: Final = ("p50", "p99", "first", "init")
"""Names in `ComparedTimes` of the figures to choose from; the memory follows them."""

_MIB: Final = 2**20
"""Bytes of the unit in which memory is written: models of the zoo take tens to hundreds."""

_DIGITS: Final = 5
"""Significant digits of a figure: two more than the page shows."""


def figures() -> list[tuple[str, str]]:
    """Return name and heading of the figures to choose from, in the order in which a column has them."""
    by_key = {metric.key: metric for metric in METRICS}
    times = [(name, by_key[f"latency_ms.{name}"]) for name in _TIMES]
    return [
        *((name, f"{one.label}, {one.unit}") for name, one in times),
        ("memory", f"{PEAK_MEMORY.label}, MiB"),
    ]


def choices_of(archive: Archive, own: Sequence[Series]) -> list[tuple[str, str, str]]:
    """Return what a line can show: versions, each with the moment of its newest result and, as JSON text, its
    columns that have one. The newest results of all come first, then the newest versions.
    """
    points: dict[str, list[Point]] = {}
    for one in own:
        # Oldest first, so that the newest result of a version is kept.
        for version, point in {point.named_version: point for point in one.points}.items():
            points.setdefault(version, []).append(point)
    # Results that name no version can be chosen among the newest alone.
    points.pop("", None)
    dated = [(max(point.at for point in found).isoformat(), version) for version, found in points.items()]
    return [
        (NEWEST, "", _columns(archive, [one.newest for one in own if one.has_result])),
        *(
            (version, at, _columns(archive, [point.cell for point in points[version]]))
            for at, version in sorted(dated, reverse=True)[:VERSIONS]
        ),
    ]


def _columns(archive: Archive, cells: Iterable[ComparedCell]) -> str:
    return json.dumps([_column(archive, cell) for cell in cells], separators=(",", ":"))


def _column(archive: Archive, cell: ComparedCell) -> list[Any]:
    """Return delegate, device, date, the verdict on the outputs, figures, and the ratio over the baseline of
    the campaign: `templates/choices.js` reads them in this order.
    """
    base = archive.baseline(cell)
    view = brief_view(cell, base, "")
    found = view.speedup
    over = base and found and [
        delegate_name(base.delegate), float(found.value), found.text, found.sign, found.word, found.tone,
    ]  # fmt: skip
    at = "" if cell.finished_at is None else f"{cell.finished_at:%Y-%m-%d}"
    shown = view.delegate, view.device, at, view.outputs
    return [*shown, _figures(cell), "baseline" if view.is_baseline else over]


def _figures(cell: ComparedCell) -> list[float | None]:
    """Return the figures in the order of `figures`, then both ends of the interval of p50."""
    m = cell.measurement
    if m is None:
        return []
    times = (getattr(m.latency_ms, name) for name in _TIMES)
    found = (*times, m.memory_peak_bytes / _MIB or None, *(m.latency_ms.ci95 or ()))
    return [None if value is None else float(f"{value:.{_DIGITS}g}") for value in found]


def scripts_of(rows: Sequence[View]) -> dict[str, str]:
    """Return the choices of all lines as one JSON text for each version that can be chosen, newest first."""
    latest: dict[str, str] = {}
    for version, at, _ in (one for row in rows for one in row.choices if one[0] != NEWEST):
        latest[version] = max(at, latest.get(version, ""))
    newest = sorted(latest, key=lambda version: (latest[version], version), reverse=True)[:VERSIONS]
    known = [{version: columns for version, _, columns in row.choices} for row in rows]
    # A line that lacks a version keeps its place: the page finds its own by position.
    return {
        version: f"[{','.join(row.get(version, '[]') for row in known)}]" for version in (NEWEST, *newest)
    }
