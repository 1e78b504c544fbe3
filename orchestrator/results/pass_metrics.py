"""The figures of the passes that run after the timed processes if a campaign asks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent.wire.measurement import Sustained
from orchestrator.results import format as text
from orchestrator.results.metric import Better, Metric, measured
from orchestrator.results.records import CellRecord


def _sustained(
    key: str,
    label: str,
    unit: str,
    meaning: str,
    read: Callable[[Sustained], float | None],
    write: Callable[[Any], str] = text.milliseconds,
) -> Metric:
    """Return a figure of the sustained pass; `detail_lines.sustained_lines` writes it if it was requested."""

    def value(cell: CellRecord) -> float | None:
        found = None if cell.measurement is None else cell.measurement.sustained
        return None if found is None or not found.slices else read(found)

    better: Better = "none" if unit == "s" else "lower"
    return Metric(
        f"sustained.{key}", label, unit, better, "latency", meaning, value, write, own_line=False,
        why_none=lambda m: "not asked for" if m.sustained is None else m.sustained.note, void_if_wrong=True,
    )  # fmt: skip


def _throughput(name: str, label: str, unit: str, meaning: str, write: Callable[[Any], str]) -> Metric:
    """Return a field of the wire's `Throughput`; `detail_lines.throughput_line` writes it if it was
    requested.
    """
    better: Better = "higher" if name == "per_second" else "none"
    return Metric(
        f"throughput.{name}", label, unit, better, "latency", meaning, measured("throughput", name), write,
        own_line=False,
        why_none=lambda m: "not asked for"
        if m.throughput is None
        else m.throughput.missing.get(name, "not recorded"),
        void_if_wrong=True,
    )  # fmt: skip


def _steps(
    name: str, label: str, unit: str, meaning: str, write: Callable[[Any], str], **more: Any
) -> Metric:
    """Return a field of the wire's `Steps`."""
    better: Better = "none" if unit == "1" else "lower"
    return Metric(
        f"steps.{name}", label, unit, better, "latency", meaning, measured("steps", name), write,
        why_none=lambda m: "not asked for" if m.steps is None else m.steps.missing.get(name, "not recorded"),
        void_if_wrong=True, own_line=False, **more,
    )  # fmt: skip


STEPS = (
    _steps(
        "count",
        "steps",
        "1",
        "Steps of each sequence that one further process timed, of a model that keeps state.",
        text.count,
    ),
    _steps(
        "first",
        "first output",
        "ms",
        "The first step of such a sequence, from a fresh state until its outputs are read; median of five.",
        text.milliseconds,
    ),
    _steps(
        "step",
        "further step",
        "ms",
        "One of the other steps of such a sequence: the median over five sequences of their medians.",
        text.milliseconds,
    ),
)
"""Those of sequences of steps."""

SUSTAINED = (
    _sustained(
        "seconds",
        "sustained for",
        "s",
        "Seconds for which one further process invoked the model without a pause, once all else was timed.",
        lambda found: found.seconds,
        text.share,
    ),
    _sustained(
        "start_p50",
        "p50 at the start",
        "ms",
        "Median of the invokes of that pass in its first half minute, or first quarter where it is short.",
        lambda found: found.slices[0].p50_ms,
    ),
    _sustained(
        "end_p50",
        "p50 at the end",
        "ms",
        "The same of its last half minute, or quarter.",
        lambda found: found.slices[-1].p50_ms,
    ),
    _sustained(
        "end_over_start",
        "end over start",
        "1",
        "The median at the end of the pass over that at its start: above 1, the model becomes slower as it "
        "runs.",
        lambda found: found.end_over_start,
        text.share,
    ),
)
"""Those of a sustained pass."""

THROUGHPUT = (
    _throughput(
        "in_flight",
        "runs in flight",
        "1",
        "Runs that one further process kept started and not yet ended, once all else was timed; 1: one after "
        "another.",
        text.count,
    ),
    _throughput(
        "seconds",
        "throughput over",
        "s",
        "Wall time of that process from the first start to the last end.",
        text.share,
    ),
    _throughput("runs", "finished runs", "1", "Runs that were started and ended in this time.", text.count),
    _throughput(
        "per_second",
        "throughput",
        "runs/s",
        "Finished runs per second of this wall time, the outputs of each read into host memory. Counted, not "
        "derived from a latency.",
        text.rate,
    ),
)
"""Those of a throughput pass."""
