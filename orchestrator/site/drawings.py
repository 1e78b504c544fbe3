"""The drawings of a page as frozen values, with their coordinates as text; templates only lay them out.

A drawing is as wide as the page lets it: places across are in per cent of its width, or in units in which a
path is written and which the page stretches. Places downwards are in px.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.site.axes import Tick


@dataclass(frozen=True, slots=True)
class RangeRow:
    """A row of the range drawing: `y` in px, the rest in per cent of the width; None is not drawn."""

    label: str
    y: int
    p50: str | None
    low: str | None
    high: str | None
    p90: str | None
    p99: str | None
    first: str | None


@dataclass(frozen=True, slots=True)
class RangePlot:
    """The p50, interval, p90, p99 and first of each delegate on one logarithmic axis. `height` in px."""

    height: int
    ticks: tuple[Tick, ...]
    rows: tuple[RangeRow, ...]


@dataclass(frozen=True, slots=True)
class ScatterPanel:
    """The samples of one process in order. Paths are of `M x y h0` dots in units, all else is in per cent."""

    label: str
    left: str
    right: str
    warm_width: str
    width: str
    warmup_path: str
    timed_path: str
    above: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scatter:
    """Processes side by side on one axis: `width` units that the page stretches, `height` px.

    `p50` is the y of the cell's p50; `few` dots are drawn larger.
    """

    width: int
    height: int
    ticks: tuple[Tick, ...]
    panels: tuple[ScatterPanel, ...]
    p50: str | None
    few: bool
    caption: str


@dataclass(frozen=True, slots=True)
class HistogramRow:
    """One process: its bars as one path in units between `top` and `base` px, its median in per cent, and
    the count outside the axis."""

    label: str
    top: int
    base: int
    path: str
    median: str
    outside: str


@dataclass(frozen=True, slots=True)
class Histogram:
    """The distribution of each process's samples, on one axis: `width` units, `height` px."""

    width: int
    height: int
    ticks: tuple[Tick, ...]
    rows: tuple[HistogramRow, ...]
    caption: str
