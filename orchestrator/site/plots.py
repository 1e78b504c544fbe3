"""Computes the drawings' coordinates: samples in order, distributions per process, ranges of cells, and the
medians of a sustained pass.

Across, a place is in units of `_WIDTH` or in per cent of it: a drawing takes the width that its page has.
Downwards it is in px. Every sample is drawn; samples that fall on the same half unit are one dot. An axis
ends where the bulk of the timed samples ends: what lies above is marked at its end and counted, never
dropped.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low
from types import SimpleNamespace as View

from agent.wire.measurement import Latency, ProcessSamples
from orchestrator.results import format as text
from orchestrator.results.records import CellRecord
from orchestrator.site.axes import Scale, log_scale, percent, px

_WIDTH = 1000
"""Width of a drawing's field in units, which the page stretches to its own width: ten units are one per cent.
Heights are in px and are never stretched, and neither are texts and strokes."""

_HEIGHT = 190
"""Height of the samples in px, chosen: 1 % of the axis is about two pixels."""

_PANEL_GAP = 10
"""Space between the panels of two processes in units, so that their samples are not taken for one series."""

_PANEL_PAD = 4
"""Space inside a panel at both ends in units, so that no dot lies on the border."""

_NAMED_PANELS = 6
"""Panels up to which each is labelled with its caches besides its number: with more of them the labels would
run together on a page of 390 px."""

_WARMUP_SHARES = (0.06, 0.3)
"""Least and greatest share of a panel's width for the warm-up. In between it is drawn at its share of the
samples; one sample stays visible, and a long warm-up leaves most of the panel to the timed samples."""

_FEW = 150
"""Timed samples of a process up to which dots are drawn larger, chosen by eye: so few small ones get lost."""

_BULK = 0.98
"""Share of the timed samples that decides where the axis ends; the slowest 2 % would squeeze the rest."""

_BEYOND_BULK = 0.8
"""How far the axis goes beyond the bulk, in heights of the bulk: the beginning of the tail is still seen."""

_MARGIN = 0.06
"""Space above and below the samples, in heights of the axis, so that no dot lies on its end."""

_BINS = 96
"""Bars of a histogram, fine enough to tell two modes apart: 10 px each on a wide page, 3 px on a phone."""

_BAR_GAP = 0.8
"""Space between two bars in units: enough to count them, too little to look like an empty bin."""

_STRIP_HEIGHT = 44
"""Height of the tallest bar of a process in px."""

_STRIP_GAP = 26
"""Space between the histograms of two processes in px: the second one's label stands there, on a line."""

_STRIP_TICKS = 5
"""Ticks wanted below the histograms: as many labels as a page of 390 px holds."""

_SUSTAINED_HEIGHT = 110
"""Height in px of the drawing of a sustained pass. Chosen: a change of some per cent is seen, and it is
smaller than that of the samples, which says more."""

_SUSTAINED_ROOM = 0.1
"""Space above and below its medians, as a share of the greatest or of their range: differences of a per mille
do not fill the axis."""

_RANGE_LABEL = 44
"""Characters of a delegate and its device above a range, as many as a page of 390 px holds; the middle of a
longer one is left out."""

_RANGE_ROW = 40
"""Height of a range in px: the label on one line, and below it the line with room for the marks."""

_RANGE_MARK = 28
"""Distance of the marks from the top of their row in px: below the label."""

_RANGE_ENDS = 12
"""Space at both ends of a range in units: the diamond of the first invoke stays inside."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The ms between which samples are drawn; `above` timed samples lie higher, `greatest` is the highest."""

    low: float
    high: float
    above: int
    greatest: float


def process_name(process: ProcessSamples) -> str:
    """`process 1` is the first, as in the warnings of a measurement."""
    return f"process {process.index + 1}"


def bounds(processes: Sequence[ProcessSamples]) -> Bounds | None:
    """Range of all timed samples, cut where the highest would squeeze the rest; None without samples."""
    samples = sorted(ns / 1e6 for p in processes for ns in p.invoke_ns)
    if not samples:
        return None
    low, greatest = samples[0], samples[-1]
    bulk = samples[math.ceil(_BULK * len(samples)) - 1]
    limit = bulk + _BEYOND_BULK * (bulk - low)
    high = min(greatest, limit)
    # Equal samples have no range of their own; a clock that stood still gives zeros.
    if high <= low:
        low, high = low * 0.95, high * 1.05 or 1.0
    above = sum(s > high for s in samples)
    return Bounds(low, high, above, greatest)


def scatter(processes: Sequence[ProcessSamples], p50: float | None) -> View | None:
    """Plot samples in the order of measurement, one panel per process, warm-up apart. `p50` in ms."""
    limits = bounds(processes)
    if limits is None:
        return None
    margin = _MARGIN * (limits.high - limits.low)
    scale = Scale(limits.low - margin, limits.high + margin, _HEIGHT, 0)
    width = (_WIDTH - _PANEL_GAP * (len(processes) - 1)) / len(processes)
    named = len(processes) <= _NAMED_PANELS
    panels = tuple(
        _panel(process, i * (width + _PANEL_GAP), width, scale, named) for i, process in enumerate(processes)
    )
    return View(
        width=_WIDTH,
        height=_HEIGHT,
        ticks=scale.ticks(),
        panels=panels,
        p50=None if p50 is None else px(scale(p50)),
        few=max(len(p.invoke_ns) for p in processes) <= _FEW,
        caption=_cut_caption(limits, " (▲)"),
    )


def _cut_caption(limits: Bounds, sign: str = "") -> str:
    if not limits.above:
        return ""
    noun = "sample lies" if limits.above == 1 else "samples lie"
    return (
        f"{text.count(limits.above)} timed {noun} above the axis{sign}, "
        f"the greatest at {text.milliseconds(limits.greatest)} ms"
    )


def _panel(process: ProcessSamples, left: float, width: float, scale: Scale, named: bool) -> View:
    warm, timed = len(process.warmup_ns), len(process.invoke_ns)
    least, greatest = _WARMUP_SHARES
    share = min(greatest, max(least, warm / (warm + timed))) if warm else 0.0
    warm_width = share * width
    warm_path, warm_above = _dots(process.warmup_ns, left, warm_width, scale)
    timed_path, timed_above = _dots(process.invoke_ns, left + warm_width, width - warm_width, scale)
    number = str(process.index + 1)
    label = f"{number} · {process.cache}" if named else number
    return _placed_panel(label, left, width, warm_width, warm_path, timed_path, (*warm_above, *timed_above))


def _placed_panel(
    label: str,
    left: float,
    width: float,
    warm_width: float,
    warmup_path: str = "",
    timed_path: str = "",
    above: Sequence[str] = (),
) -> View:
    """Return a panel: paths of `M x y h0` dots in units, all else in per cent; `above`: the x of each sample
    that is higher than the axis.
    """
    return View(
        label=label, left=percent(left, _WIDTH), right=percent(left + width, _WIDTH),
        warm_width=percent(warm_width, _WIDTH), width=percent(width, _WIDTH),
        warmup_path=warmup_path, timed_path=timed_path, above=above,
    )  # fmt: skip


def _dots(samples_ns: Sequence[int], left: float, width: float, scale: Scale) -> tuple[str, tuple[str, ...]]:
    """Return a path of dots in order, in units, and the x of those above the axis, in per cent."""
    # Sets that keep their order: dots are drawn in the order of measurement.
    inside: dict[tuple[float, float], None] = {}
    above: dict[float, None] = {}
    room = width - 2 * _PANEL_PAD
    step = room / max(1, len(samples_ns) - 1)
    for i, ns in enumerate(samples_ns):
        x = _half(left + _PANEL_PAD + (i * step if len(samples_ns) > 1 else room / 2))
        if ns / 1e6 > scale.high:
            above[x] = None
        else:
            inside[x, _half(scale(ns / 1e6))] = None
    # A line of no length with round ends is the shortest dot that SVG has: a page holds thousands of them.
    return "".join(f"M{px(x)} {px(y)}h0" for x, y in inside), tuple(percent(x, _WIDTH) for x in above)


def _half(value: float) -> float:
    return round(value * 2) / 2


def histogram(processes: Sequence[ProcessSamples]) -> View | None:
    """Distribution of the timed samples of each process, all on one axis; None without samples."""
    limits = bounds(processes)
    if limits is None:
        return None
    scale = Scale(limits.low, limits.high, 0, _WIDTH)
    timed = [process for process in processes if process.invoke_ns]
    bottom = len(timed) * (_STRIP_HEIGHT + _STRIP_GAP)
    return View(
        width=_WIDTH,
        height=bottom,
        ticks=scale.ticks(_STRIP_TICKS, percent_of=_WIDTH),
        rows=tuple(
            _strip(process, scale, (i + 1) * (_STRIP_HEIGHT + _STRIP_GAP)) for i, process in enumerate(timed)
        ),
        caption=_cut_caption(limits),
    )


def _strip(process: ProcessSamples, scale: Scale, base: int) -> View:
    counts = [0] * _BINS
    outside = 0
    for ns in process.invoke_ns:
        share = (ns / 1e6 - scale.low) / (scale.high - scale.low)
        if share > 1:
            outside += 1
        else:
            # A sample on the very end of the axis belongs to the last bar.
            counts[min(_BINS - 1, int(share * _BINS))] += 1
    bin_width = (scale.end - scale.start) / _BINS
    # All samples of a process may lie above the axis.
    tallest = max(1, *counts)
    bars = [(scale.start + i * bin_width, n / tallest * _STRIP_HEIGHT) for i, n in enumerate(counts) if n]
    path = "".join(f"M{px(x)} {base}v-{px(height)}h{px(bin_width - _BAR_GAP)}V{base}z" for x, height in bars)
    return View(
        label=process_name(process),
        top=base - _STRIP_HEIGHT,
        base=base,
        path=path,
        # The lower median is the nearest rank, by which the measuring core forms a p50, too.
        median=percent(scale(median_low(process.invoke_ns) / 1e6), _WIDTH),
        outside=f"+{outside} above" if outside else "",
    )


def range_plot(latencies: Sequence[tuple[str, Latency]]) -> View | None:
    """One row per (label, latency) that has a p50, on one logarithmic axis; None without any."""
    drawn = [(label, latency) for label, latency in latencies if latency.p50]
    values = [v for _, latency in drawn for v in _range_values(latency)]
    if not values:
        return None
    scale = log_scale(values, _RANGE_ENDS, _WIDTH - _RANGE_ENDS)
    return View(
        height=len(drawn) * _RANGE_ROW,
        ticks=scale.ticks(percent_of=_WIDTH),
        rows=tuple(_range_row(label, latency, i, scale) for i, (label, latency) in enumerate(drawn)),
    )


def _range_values(latency: Latency) -> list[float]:
    values = (latency.p50, latency.p90, latency.p99, latency.first, *(latency.ci95 or ()))
    return [v for v in values if v]


def _range_row(label: str, latency: Latency, index: int, scale: Scale) -> View:
    def at(value: float | None) -> str | None:
        return percent(scale(value), _WIDTH) if value else None

    low, high = latency.ci95 or (None, None)
    return View(
        label=text.short_name(label, _RANGE_LABEL),
        y=index * _RANGE_ROW + _RANGE_MARK,
        p50=at(latency.p50),
        low=at(low),
        high=at(high),
        p90=at(latency.p90),
        p99=at(latency.p99),
        first=at(latency.first),
    )


def sustained_plot(cell: CellRecord) -> View | None:
    """Draw the median of each part of a sustained pass in order, as a scatter of one panel; None if there
    were fewer than two, and of a wrong output.
    """
    found = None if cell.measurement is None or cell.struck_out else cell.measurement.sustained
    values = [] if found is None else [part.p50_ms for part in found.slices]
    return _medians(values) if len(values) > 1 else None


def _medians(values: Sequence[float]) -> View:
    low, high = min(values), max(values)
    room = max(_SUSTAINED_ROOM * (high - low), _SUSTAINED_ROOM * high) or 1.0
    scale = Scale(low - room, high + room, _SUSTAINED_HEIGHT, 0)
    step = _WIDTH / len(values)
    path = "".join(f"M{px((i + 0.5) * step)} {px(scale(value))}h0" for i, value in enumerate(values))
    return View(
        width=_WIDTH,
        height=_SUSTAINED_HEIGHT,
        ticks=scale.ticks(3),
        panels=(_placed_panel("", 0, _WIDTH, 0, timed_path=path),),
        p50=px(scale(values[0])),
        few=True,
        caption="",
    )
