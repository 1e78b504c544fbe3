"""The registry of a cell's figures: the name of each, how it is read and written, and its meaning.

The comparison table, `farm show`, CSV, JSON, the pages and docs/metrics.md read this registry, so that a new
figure is a field of the wire's `Measurement`, the code that measures it, and one entry here or in
`cost_figures`.
"""

from collections.abc import Callable
from typing import Any

from agent.wire.measurement import Measurement
from orchestrator.results import format as text
from orchestrator.results.cost_figures import COSTS
from orchestrator.results.metric import Better, Metric, Section, measured, time_of
from orchestrator.results.passes import PASS_RESULTS
from orchestrator.results.records import CellRecord


def _latency(
    name: str, label: str, meaning: str, write: Callable[[Any], str] = text.milliseconds, **more: Any
) -> Metric:
    return time_of(f"latency_ms.{name}", ("latency_ms", name), label, "latency", meaning, write, **more)


def _tail(name: str, percent: int) -> Metric:
    """Return a percentile of the wire's `Latency` above the median."""
    return _latency(
        name,
        name,
        f"A bound of the {percent}th percentile of the processes' calls, each process weighing the same: the "
        "lowest sample that is not below it with a confidence of 99 %; at least p50.",
    )


def _device_time(name: str, label: str, meaning: str) -> Metric:
    return time_of(f"device_ms.{name}", ("device", name), label, "latency", meaning)


def _accuracy(
    name: str, better: Better, unit: str, meaning: str, write: Callable[[Any], str] = text.error
) -> Metric:
    return Metric(
        f"accuracy.{name}", name.replace("_", " "), unit, better, "output", meaning,
        measured("accuracy", name), write, why_none=lambda m: m.accuracy.note,
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
    return Metric(
        f"labelled.{name}", label, unit, better, "output", meaning, measured("labelled", name), write,
        own_line=False, table=table,
    )  # fmt: skip


def _share_in_table(m: Measurement) -> str:
    return "" if m.labelled is None else f"{m.labelled.metric} {text.share(m.labelled.share)}"


P50 = _latency(
    "p50",
    "p50",
    "Median of the timed invokes, end to end: from the inputs in host memory to all outputs readable in host "
    "memory. Copies to and from a device are included. That of a process is the median over its rounds of "
    "each slice's median; that of a cell is their geometric mean, from six blocks on without the fifth of "
    "them at either end.",
)
MEAN = _latency("mean", "mean", "Mean over the processes of each one's mean of the same invokes.")


def leading(cell: CellRecord) -> Metric:
    """Return the figure that stands for a cell: p50, or the mean where another tool told no median."""
    only_mean = cell.imported is not None and P50.read(cell) is None and MEAN.read(cell) is not None
    return MEAN if only_mean else P50


CI95 = _latency(
    "ci95",
    "95 % interval",
    "The 95 % interval of p50, low and high, over the logarithms of the processes' medians: Student's, from "
    "six blocks on that of the trimmed mean (Yuen's). With too few blocks there is none.",
    text.interval,
    parts=("low", "high"),
    interval_of=P50.key,
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
    _tail("p90", 90),
    _tail("p99", 99),
    MEAN,
    _latency(
        "first_warm", "first, warm", "The same in the processes that find the caches filled; their median."
    ),
    _tail("p95", 95),
    *(
        _latency(
            f"{tail}_ci95",
            f"95 % interval of {tail}",
            f"The 95 % interval of {tail}, low and high, as that of p50 over the processes' own percentiles; "
            f"it reaches up to {tail} at least.",
            text.interval,
            parts=("low", "high"),
            interval_of=f"latency_ms.{tail}",
        )
        for tail in ("p90", "p99")
    ),
    SAMPLES,
    Metric(
        "cpu_ms",
        "CPU time",
        "ms",
        "lower",
        "latency",
        "CPU time of all threads of the process for one invoke, with what the process does between invokes: "
        "by the kernel's counters around each kept slice. Above p50 where several threads compute or one "
        "waits in a loop, below it where the process sleeps while a device computes. The mean over the "
        "processes of each one's median over its slices.",
        read=measured("cpu_ms"),
        text=text.milliseconds,
        unit_in_heading=True,
        void_if_wrong=True,
    ),
    _device_time(
        "busy",
        "device busy",
        "How long the device computes in an invoke: the sum, over everything that the invoke enqueues, of "
        "END less START by the device's events. Copies between host and device are not in it. From invokes "
        "after the timed ones; the mean over the processes of each one's median.",
    ),
    _device_time(
        "queue_delay",
        "queue delay",
        "How long the first kernel of an invoke waits: START less QUEUED of its event, in the same pass. Of "
        "several partitions it is their sum.",
    ),
    *(figure for one in PASS_RESULTS for figure in one.figures),
    *COSTS,
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
    _accuracy(
        "margin",
        "lower",
        "1",
        "Error over its bound, of the rule and the output that come nearest to it: 1 is at the bound.",
    ),
    _labelled(
        "samples", "labelled samples", "1", "none", "Samples of known truth that the model was run on."
    ),
    _labelled(
        "right",
        "right answers",
        "1",
        "higher",
        "Samples whose class is among the first K answers (`topK`); none where no sample is right or wrong.",
    ),
    _labelled(
        "share",
        "share right",
        "1",
        "higher",
        "Right answers divided by labelled samples, or the other figure that `labelled.metric` names.",
        text.share,
        _share_in_table,
    ),
)
"""Every figure, in the order in which tables and pages show them."""


def named(word: str) -> Metric | None:
    """Return the metric with this key (`latency_ms.init`), its last part, or its label, if there is one."""
    ways = (
        [metric for metric in METRICS if metric.key == word],
        [metric for metric in METRICS if metric.key.rpartition(".")[2] == word],
        [metric for metric in METRICS if metric.label == word],
    )
    return next((found[0] for found in ways if found), None)


def in_section(*sections: Section) -> tuple[Metric, ...]:
    """Return the metrics of these sections that have a line of their own, in the registry's order."""
    return tuple(metric for metric in METRICS if metric.own_line and metric.section in sections)
