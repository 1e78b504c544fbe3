"""The rows of the pages' tables, as frozen values with their final text; all else templates read from
the records themselves, through the filters of `build`.

`href` is always relative to the site's root; a template prefixes the path to the root.
A `tone` is a word for the style sheet (bad, quiet, the tones of a speed-up); no meaning depends on it alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.wire.measurement import Delegation
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
    """The distributions of the processes' samples, on one axis: `width` units, `height` px."""

    width: int
    height: int
    ticks: tuple[Tick, ...]
    rows: tuple[HistogramRow, ...]
    caption: str


Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Link:
    """Text that leads to a page of the site."""

    text: str
    href: str


@dataclass(frozen=True, slots=True)
class Badge:
    """A word with a sign, and the figures behind it."""

    sign: str
    text: str
    tone: str
    details: Facts = ()


@dataclass(frozen=True, slots=True)
class IntervalBar:
    """A p50 and its interval on the scale of its row, in px of `matrix.BAR_WIDTH`."""

    p50: str
    low: str | None
    high: str | None
    baseline: str | None


@dataclass(frozen=True, slots=True)
class SpeedUpView:
    """A speed-up. `word` says what the colour says; `against` names the baseline.

    `interval` and `blocks` are empty for one that is not paired.
    """

    text: str
    word: str
    sign: str
    tone: str
    against: str
    interval: str
    blocks: str
    value: str
    """The ratio itself, from which the script forms the mean of the rows that are shown."""


@dataclass(frozen=True, slots=True)
class Chip:
    """A figure below the latency of a cell; `title` explains it."""

    key: str
    text: str
    title: str


@dataclass(frozen=True, slots=True)
class StatusView:
    """A cell's state as sign and word, and the reason where there is one."""

    sign: str
    word: str
    tone: str
    code: str = ""
    reason: str = ""
    line: str = ""
    """The first line of the reason, short enough for a table."""


@dataclass(frozen=True, slots=True)
class CellView:
    """One model on one delegate and device. `p50` is None where there is no number.

    `void`: why the figures are never compared, or empty. `repeats`: the reason of why stands in a row above
    of the same column.
    """

    href: str
    column: str
    delegate: str
    device: str
    status: StatusView
    p50: str | None
    unit: str
    interval: str | None
    why_no_p50: str
    struck_out: bool
    bar: IntervalBar | None
    speedup: SpeedUpView | None
    is_baseline: bool
    delegation: Delegation | None
    accuracy: Badge | None
    chips: tuple[Chip, ...]
    grade: Badge | None
    void: str
    reused: bool
    sort_key: str
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A delegate on a device. `note`: where its cells and their baseline ran with unequal threads."""

    delegate: str
    device: str
    device_name: str
    note: str
    is_baseline: bool
    geomean: str
    geomean_over: str


@dataclass(frozen=True, slots=True)
class Row:
    """A model; `cells` follow the columns, None where no cell was requested."""

    model: Link
    detail: str
    cells: tuple[CellView | None, ...]


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """Cells without a counted number that share their state and reason; `cells` are (name, page)."""

    status: StatusView
    reason: str
    cells: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Models x (delegate on device). `baseline` is the delegate's name, or empty; cells show the p50.

    `sentences` are the headline, `legend` explains the signs that occur: both as on a terminal.
    """

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    baseline: str
    without_number: tuple[Unmeasured, ...]
    sentences: tuple[str, ...]
    legend: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of a table: its text, or a dash with the mark of the footnote that says why.

    `struck`: the number is kept as evidence, and the output it belongs to is wrong. `interval`: that of the
    figure, for the line below it, or a dash with the mark `interval_note`; empty where it never has one.
    """

    text: str
    note: str = ""
    struck: bool = False
    interval: str = ""
    interval_note: str = ""


@dataclass(frozen=True, slots=True)
class SustainedView:
    """A sustained pass: what it says, and the median of each part in order; no plot of fewer than two."""

    facts: Facts
    plot: Scatter | None
