"""Every sample is drawn or counted, and every coordinate lies on the sheet."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.wire.measurement import Latency, ProcessSamples
from orchestrator.site.axes import Scale, log_scale
from orchestrator.site.plots import bounds, histogram, range_plot, scatter
from tests.orchestrator.site.records import processes

SAMPLES = st.lists(st.integers(min_value=1, max_value=10**12), max_size=40)


def _process(warmup: list[int], timed: list[int], index: int = 0) -> ProcessSamples:
    return ProcessSamples(
        index=index, cache="cold", init_ns=1, first_ns=1, warmup_ns=tuple(warmup), invoke_ns=tuple(timed),
        memory_peak_bytes=1, memory_before_bytes=1,
    )  # fmt: skip


def _units(place: str) -> float:
    """Convert a place in per cent to units of the drawing's width."""
    assert place.endswith("%")
    return float(place[:-1]) * 10


def _dots(path: str) -> list[tuple[float, float]]:
    assert re.fullmatch(r"(M-?[\d.]+ -?[\d.]+h0)*", path)
    return [(float(x), float(y)) for x, y in re.findall(r"M(-?[\d.]+) (-?[\d.]+)h0", path)]


@settings(max_examples=60)
@given(st.lists(st.tuples(SAMPLES, SAMPLES), min_size=1, max_size=4))
def test_scatter_stays_on_its_sheet(lists):
    made = [_process(warm, timed, i) for i, (warm, timed) in enumerate(lists)]
    plot = scatter(made, p50=None)
    if not any(timed for _, timed in lists):
        assert plot is None
        return
    for panel, (warm, timed) in zip(plot.panels, lists, strict=True):
        left, width = _units(panel.left), _units(panel.width)
        for x, y in _dots(panel.warmup_path) + _dots(panel.timed_path):
            assert left - 0.5 <= x <= left + width + 0.5 <= plot.width + 0.5
            assert 0 <= y <= plot.height
        assert len(_dots(panel.timed_path)) <= len(timed)
        assert bool(panel.warmup_path or panel.timed_path or panel.above) == bool(warm or timed)


def test_scatter_draws_each_sample_once_and_warm_up_apart():
    plot = scatter([_process([9_000_000], [1_000_000, 1_100_000, 1_050_000])], p50=1.05)
    (panel,) = plot.panels
    assert len(_dots(panel.timed_path)) == 3
    xs = [x for x, _ in _dots(panel.timed_path)]
    assert xs == sorted(xs), "in the order of measurement"
    assert min(xs) >= _units(panel.left) + _units(panel.warm_width)
    ys = [y for _, y in _dots(panel.timed_path)]
    assert ys[0] > ys[2] > ys[1], "slower is higher"
    assert float(plot.p50) == pytest.approx(ys[2], abs=1)
    assert len(panel.above) == 1, "the slow warm-up sample is marked at the top"


def test_outliers_are_marked_and_counted_not_dropped():
    timed = [1_000_000 + i * 100 for i in range(200)] + [50_000_000]
    limits = bounds([_process([], timed)])
    assert limits.above == 1
    assert limits.greatest == 50.0
    plot = scatter([_process([], timed)], p50=1.01)
    assert len(plot.panels[0].above) == 1
    assert "1 timed sample lies above the axis" in plot.caption
    assert "50.0 ms" in plot.caption
    drawn = histogram([_process([], timed)])
    assert drawn.rows[0].outside == "+1 above"


@settings(max_examples=60)
@given(st.lists(SAMPLES.filter(bool), min_size=1, max_size=4))
def test_histogram_bars_stay_on_their_strip(lists):
    plot = histogram([_process([], timed, i) for i, timed in enumerate(lists)])
    for row, timed in zip(plot.rows, lists, strict=True):
        heights = [float(h) for h in re.findall(r"v-([\d.]+)h", row.path)]
        outside = int(row.outside[1:].split()[0]) if row.outside else 0
        assert bool(heights) == (outside < len(timed))
        assert max(heights, default=0) <= 44
        assert 0 <= _units(row.median) <= plot.width


def test_nothing_timed_draws_nothing():
    assert scatter([_process([5], [])], p50=None) is None
    assert histogram([]) is None
    assert range_plot([]) is None


def test_range_plot_orders_its_marks():
    latency = Latency(
        init=9, init_warm=1, first=7.0, p50=2.0, p90=2.4, p99=3.1, mean=2.1, ci95=(1.9, 2.1)
    )  # fmt: skip
    empty = latency.model_copy(update={"p50": None})
    plot = range_plot([("gpu @ a", latency), ("cpu @ b", empty)])
    (row,) = plot.rows
    marks = [_units(v) for v in (row.low, row.p50, row.high, row.p90, row.p99, row.first)]
    assert marks == sorted(marks)
    assert marks[0] > 0
    assert marks[-1] < 1000


@given(st.lists(st.floats(min_value=1e-6, max_value=1e9), min_size=1, max_size=8))
def test_log_scale_holds_its_values_and_keeps_their_order(values):
    scale = log_scale(values, 5, 127)
    placed = [scale(v) for v in sorted(values)]
    assert placed == sorted(placed)
    assert placed[0] >= 5
    assert placed[-1] <= 127
    for tick in scale.ticks():
        assert 5 <= float(tick.position) <= 127


@given(st.floats(min_value=1e-6, max_value=1e9), st.floats(min_value=1e-9, max_value=1e6))
def test_linear_ticks_are_few_and_inside(low, span):
    scale = Scale(low, low + max(span, low * 1e-6), 0, 100)
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 12
    assert all(0 <= float(tick.position) <= 100 for tick in ticks)


def test_real_looking_samples_fill_the_sheet():
    plot = scatter(processes("any", 3.0), p50=3.02)
    ys = [y for panel in plot.panels for _, y in _dots(panel.timed_path)]
    assert max(ys) - min(ys) > 0.4 * plot.height, "the bulk is not squeezed by outliers"
