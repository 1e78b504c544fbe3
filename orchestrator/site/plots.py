"""Computes the drawings' coordinates: samples in order, distributions per process, ranges of cells.

Every sample is drawn; samples that fall on the same half pixel are one dot. An axis ends where the bulk of
the timed samples ends: what lies above is marked at its end and counted, never dropped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

from agent.wire.messages import Latency, ProcessSamples
from orchestrator.results import format as text
from orchestrator.site.axes import Scale, log_scale, px
from orchestrator.site.pages import Histogram, HistogramRow, RangePlot, RangeRow, Scatter, ScatterPanel

_WIDTH = 960
"""Width of every drawing in units of its viewBox; the style sheet scales it to the page, about 1 px each."""

_LEFT = 54
"""Space left of the samples in px: a tick's label of six digits at 8 px distance."""

_RIGHT = 10
"""Space right of the samples in px: the last dot and its axis stay inside."""

_TOP = 24
"""Space above the samples in px: the label of a process on one line."""

_PLOT_HEIGHT = 190
"""Height of the samples in px, chosen: 1 % of the axis is about two pixels."""

_BOTTOM = _TOP + _PLOT_HEIGHT
"""Where the samples end, in px from the top."""

_AXIS_HEIGHT = 24
"""Space below a drawing in px: the labels of its axis on one line."""

_PANEL_GAP = 10
"""Space between the panels of two processes in px, so that their samples are not taken for one series."""

_PANEL_PAD = 4
"""Space inside a panel at both ends in px, so that no dot lies on the border."""

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
"""Bars of a histogram: at the width of the drawing about 8 px each, fine enough to tell two modes apart."""

_BAR_GAP = 0.8
"""Space between two bars in px: enough to count them, too little to look like an empty bin."""

_STRIP_HEIGHT = 44
"""Height of the tallest bar of a process in px; the template's median line is 4 px taller."""

_STRIP_GAP = 10
"""Space between the histograms of two processes in px."""

_STRIP_LEFT = _LEFT + 56
"""Where the bars begin in px: `process 20` is written in front of them."""

_STRIP_RIGHT = 90
"""Space right of the bars in px: the count of samples outside is written there, by the template as well."""

_STRIP_TICKS = 8
"""Ticks wanted below the histograms, whose axis is wider than it is high."""

_RANGE_LEFT = 250
"""Space left of a range in px: a label of `_RANGE_LABEL` characters."""

_RANGE_LABEL = 34
"""Characters of a delegate and its device in front of a range; the middle of a longer one is left out."""

_RANGE_RIGHT = 16
"""Space right of a range in px: the diamond of the first invoke stays inside."""

_RANGE_ROW = 26
"""Height of a range in px: a line of text with room above and below."""

_RANGE_PAD = 4
"""Space above the first and below the last range in px."""


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


def scatter(processes: Sequence[ProcessSamples], p50: float | None) -> Scatter | None:
    """Samples in the order of measurement, one panel per process, warm-up apart. `p50` in ms."""
    limits = bounds(processes)
    if limits is None:
        return None
    margin = _MARGIN * (limits.high - limits.low)
    scale = Scale(limits.low - margin, limits.high + margin, _BOTTOM, _TOP)
    width = (_WIDTH - _LEFT - _RIGHT - _PANEL_GAP * (len(processes) - 1)) / len(processes)
    panels = tuple(
        _panel(process, _LEFT + i * (width + _PANEL_GAP), width, scale) for i, process in enumerate(processes)
    )
    return Scatter(
        width=_WIDTH,
        height=_BOTTOM + _AXIS_HEIGHT,
        left=_LEFT,
        top=_TOP,
        bottom=_BOTTOM,
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


def _panel(process: ProcessSamples, left: float, width: float, scale: Scale) -> ScatterPanel:
    warm, timed = len(process.warmup_ns), len(process.invoke_ns)
    least, greatest = _WARMUP_SHARES
    share = min(greatest, max(least, warm / (warm + timed))) if warm else 0.0
    warm_width = share * width
    warm_path, warm_above = _dots(process.warmup_ns, left, warm_width, scale)
    timed_path, timed_above = _dots(process.invoke_ns, left + warm_width, width - warm_width, scale)
    return ScatterPanel(
        label=f"{process_name(process)} · {process.cache}",
        left=px(left),
        warm_width=px(warm_width),
        width=px(width),
        warmup_path=warm_path,
        timed_path=timed_path,
        above=(*warm_above, *timed_above),
    )


def _dots(samples_ns: Sequence[int], left: float, width: float, scale: Scale) -> tuple[str, tuple[str, ...]]:
    """A path of dots in order, and the x of those above the axis."""
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
    return "".join(f"M{px(x)} {px(y)}h0" for x, y in inside), tuple(px(x) for x in above)


def _half(value: float) -> float:
    return round(value * 2) / 2


def histogram(processes: Sequence[ProcessSamples]) -> Histogram | None:
    """Distribution of the timed samples of each process, all on one axis; None without samples."""
    limits = bounds(processes)
    if limits is None:
        return None
    scale = Scale(limits.low, limits.high, _STRIP_LEFT, _WIDTH - _STRIP_RIGHT)
    rows = tuple(
        _strip(process, scale, (i + 1) * (_STRIP_HEIGHT + _STRIP_GAP))
        for i, process in enumerate(p for p in processes if p.invoke_ns)
    )
    bottom = len(rows) * (_STRIP_HEIGHT + _STRIP_GAP)
    return Histogram(
        width=_WIDTH,
        height=bottom + _AXIS_HEIGHT,
        left=_STRIP_LEFT,
        bottom=bottom,
        ticks=scale.ticks(_STRIP_TICKS),
        rows=rows,
        caption=_cut_caption(limits),
    )


def _strip(process: ProcessSamples, scale: Scale, base: int) -> HistogramRow:
    counts = [0] * _BINS
    outside = 0
    for ns in process.invoke_ns:
        share = (ns / 1e6 - scale.low) / (scale.high - scale.low)
        if share > 1:
            outside += 1
        else:
            counts[min(_BINS - 1, int(share * _BINS))] += 1
    bin_width = (scale.end - scale.start) / _BINS
    tallest = max(1, *counts)
    bars = [(scale.start + i * bin_width, n / tallest * _STRIP_HEIGHT) for i, n in enumerate(counts) if n]
    path = "".join(f"M{px(x)} {base}v-{px(height)}h{px(bin_width - _BAR_GAP)}V{base}z" for x, height in bars)
    return HistogramRow(
        label=process_name(process),
        base=str(base),
        path=path,
        # The lower median is the nearest rank, by which the measuring core forms a p50, too.
        median=px(scale(median_low(process.invoke_ns) / 1e6)),
        outside=f"+{outside} above" if outside else "",
    )


def range_plot(latencies: Sequence[tuple[str, Latency]]) -> RangePlot | None:
    """One row per (label, latency) that has a p50, on one logarithmic axis; None without any."""
    drawn = [(label, latency) for label, latency in latencies if latency.p50]
    values = [v for _, latency in drawn for v in _range_values(latency)]
    if not values:
        return None
    scale = log_scale(values, _RANGE_LEFT, _WIDTH - _RANGE_RIGHT)
    bottom = len(drawn) * _RANGE_ROW + 2 * _RANGE_PAD
    return RangePlot(
        width=_WIDTH,
        height=bottom + _AXIS_HEIGHT,
        left=_RANGE_LEFT,
        bottom=bottom,
        ticks=scale.ticks(),
        rows=tuple(_range_row(label, latency, i, scale) for i, (label, latency) in enumerate(drawn)),
    )


def _range_values(latency: Latency) -> list[float]:
    values = (latency.p50, latency.p90, latency.p99, latency.first, *(latency.ci95 or ()))
    return [v for v in values if v]


def _range_row(label: str, latency: Latency, index: int, scale: Scale) -> RangeRow:
    def at(value: float | None) -> str | None:
        return px(scale(value)) if value else None

    low, high = latency.ci95 or (None, None)
    return RangeRow(
        label=text.short_name(label, _RANGE_LABEL),
        y=px(index * _RANGE_ROW + _RANGE_ROW / 2 + _RANGE_PAD),
        p50=at(latency.p50),
        low=at(low),
        high=at(high),
        p90=at(latency.p90),
        p99=at(latency.p99),
        first=at(latency.first),
    )
