"""The registry of a cell's figures: the name of each, how it is read and written, and its meaning.

The comparison table, `farm show`, CSV, JSON, the pages and docs/metrics.md read this registry, so that a new
figure is a field of the wire's `Measurement`, the code that measures it, and one entry here.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from agent.wire.measurement import Measurement
from orchestrator.results import format as text
from orchestrator.results.metric import Better, Metric, Section, measured
from orchestrator.results.passes import PASS_RESULTS
from orchestrator.results.records import CellRecord


def _time(
    key: str,
    path: tuple[str, ...],
    label: str,
    section: Section,
    meaning: str,
    write: Callable[[Any], str] = text.milliseconds,
    **more: Any,
) -> Metric:
    """Return a time of a part of the wire's `Measurement` that says in `missing` why it lacks one."""
    part, *_, name = path
    return Metric(
        key, label, "ms", "lower", section, meaning, measured(*path), write,
        why_none=lambda m: getattr(m, part).missing.get(name, "not recorded"),
        unit_in_heading=True, void_if_wrong=True, **more,
    )  # fmt: skip


def _latency(
    name: str, label: str, meaning: str, write: Callable[[Any], str] = text.milliseconds, **more: Any
) -> Metric:
    return _time(f"latency_ms.{name}", ("latency_ms", name), label, "latency", meaning, write, **more)


def _tail(name: str, percent: int) -> Metric:
    """Return a percentile of the wire's `Latency` above the median."""
    return _latency(
        name,
        name,
        f"A bound of the {percent}th percentile of the processes' calls, each process weighing the same: the "
        "lowest sample that is not below it with a confidence of 99 %; at least p50.",
    )


def _device_time(name: str, label: str, meaning: str) -> Metric:
    return _time(f"device_ms.{name}", ("device", name), label, "latency", meaning)


def _transfer(name: str, label: str, meaning: str, better: Better = "lower") -> Metric:
    """Return a time of the wire's `Transfer`."""
    return replace(_time(f"transfer.{name}", ("transfer", name), label, "memory", meaning), better=better)


def _copied(name: str, label: str, meaning: str) -> Metric:
    """Return the bytes of one direction of the wire's `Transfer`."""
    return Metric(
        f"transfer.{name}", label, "bytes", "lower", "memory", meaning, measured("transfer", name),
        text.byte_count, why_none=lambda m: m.transfer.missing.get(name, "not recorded"),
    )  # fmt: skip


def _power(cell: CellRecord) -> float | None:
    found = cell.measurement
    if found is None or found.energy.invoke_mj is None or not found.latency_ms.mean:
        return None
    return found.energy.invoke_mj / found.latency_ms.mean


def _init_saved(cell: CellRecord) -> float | None:
    m = cell.measurement
    if m is None or m.cache_bytes == 0 or m.latency_ms.init is None or m.latency_ms.init_warm is None:
        return None
    return m.latency_ms.init - m.latency_ms.init_warm


def _why_none_saved(m: Measurement) -> str:
    if m.cache_bytes == 0:
        return "left nothing in program caches"
    return m.latency_ms.missing.get("init_warm", "not recorded")


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


def _init_stage(cache: Literal["cold", "warm"], stage: str, meaning: str) -> Metric:
    return _time(f"init_ms.{cache}.{stage}", ("init", cache, stage), f"{stage}, {cache}", "init", meaning)


def _init_stages(cache: Literal["cold", "warm"]) -> tuple[Metric, ...]:
    """Return the stages of an init: each is explained in full for the cold one."""
    if cache == "cold":
        stages = [_init_stage(cache, stage, meaning) for stage, meaning in INIT_STAGES.items()]
        whose = "the cold process"
    else:
        stages = [
            _init_stage(cache, stage, f"The same as {stage}, cold, of a process that finds filled caches.")
            for stage in INIT_STAGES
        ]
        whose = "a process that finds filled caches"
    counted = Metric(
        f"init_ms.{cache}.n",
        f"inits, {cache}",
        "1",
        "none",
        "init",
        f"Inits of {whose}, of which the stages are those of the lower median.",
        measured("init", cache, "n"),
        text.count,
        own_line=False,
    )
    return (*stages, counted)


def _memory_stage(name: str, label: str, meaning: str) -> Metric:
    return Metric(
        f"memory_bytes.{name}", label, "bytes", "lower", "memory", meaning, measured("memory", name),
        text.byte_count, why_none=lambda m: m.memory.missing.get(name, "not recorded"),
    )  # fmt: skip


def _share_in_table(m: Measurement) -> str:
    return "" if m.labelled is None else f"{m.labelled.metric} {text.share(m.labelled.share)}"


INIT_STAGES = {
    "parse": "Part of the init: reading and checking the file.",
    "partition": "Part of the init: inferring shapes, folding constants, assigning operators to delegates.",
    "compile": "Part of the init: making what runs the operators: kernels of the CPU path, or the delegate's "
    "graph and its program, compiled or found in a cache.",
    "tune": "Part of the init: timing alternatives, or recalling what was chosen by timing before.",
    "upload": "Part of the init: allocating memory on the device, and packing and copying constants there.",
    "other": "What remains of the init: opening the device, making the delegate, and whatever no stage "
    "tells. With the stages it adds up to the init.",
}
"""Stages of an init, in their order, with what they are."""

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
PEAK_MEMORY = Metric(
    "memory_bytes.peak",
    "peak memory",
    "bytes",
    "lower",
    "resources",
    "Growth of the process's peak resident memory (VmHWM) from just before the model is loaded: the "
    "model, its tensors and the delegate, without the interpreter of the language. The largest of the timed "
    "processes. Memory of a discrete GPU is not in it.",
    read=lambda cell: cell.memory_peak_bytes,
    text=text.byte_count,
    why_none=lambda _: "nothing was run",
    chip=True,
)

PEAK_MEMORY_COLD = Metric(
    "memory_bytes.peak_cold",
    "peak memory, cold",
    "bytes",
    "lower",
    "resources",
    "The same of the process that finds empty caches, and compiles what the others find.",
    read=lambda cell: cell.memory_peak_cold_bytes,
    text=text.byte_count,
    why_none=lambda _: "not recorded",
)

ENERGY = Metric(
    "energy.invoke_mj",
    "energy",
    "mJ",
    "lower",
    "resources",
    "Energy of one timed invoke, from the counter of the processors (RAPL) or of the GPU: the counter's mean "
    "power while a process is timed, times that time, over its invokes; the mean over the processes. "
    "Nothing is subtracted, so that it holds what the part uses when idle.",
    read=lambda cell: None if cell.measurement is None else cell.measurement.energy.invoke_mj,
    text=lambda value: f"{value:.4g}",
    why_none=lambda m: m.energy.note or "not recorded",
    unit_in_heading=True,
    void_if_wrong=True,
)

INSTALLED = Metric(
    "installed.bytes",
    "installed bytes",
    "bytes",
    "lower",
    "resources",
    "Files of the delegate on the agent: those of the runtime that it executes, and all of the packages that "
    "it loads or comes from. Python, numpy and drivers are not among them.",
    read=lambda cell: None if cell.measurement is None else cell.measurement.installed.bytes,
    text=text.byte_count,
    why_none=lambda m: m.installed.note or "not recorded",
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
    PEAK_MEMORY,
    PEAK_MEMORY_COLD,
    ENERGY,
    Metric(
        "energy.power_w",
        "mean power",
        "W",
        "none",
        "memory",
        "This energy over the mean time of an invoke: what the part draws while it is timed.",
        read=_power,
        text=lambda value: f"{value:.4g}",
        why_none=lambda m: m.energy.note or "not recorded",
        unit_in_heading=True,
        void_if_wrong=True,
    ),
    INSTALLED,
    *_init_stages("cold"),
    *_init_stages("warm"),
    _memory_stage(
        "load",
        "memory, loaded",
        "Growth of the process's resident memory (VmRSS) from just before the model is loaded until its file "
        "is read and checked. The largest of the timed processes, like the following.",
    ),
    _memory_stage("ready", "memory, ready", "The same until the model is ready to invoke."),
    _memory_stage(
        "steady",
        "memory, steady",
        "The same until the last timed slice has ended, without the bytes of the input sets.",
    ),
    _memory_stage(
        "device",
        "memory, device",
        "Bytes of every buffer that the delegate has allocated on its device: activations, constants and "
        "tables, also on a discrete GPU. Where the device computes in the host's memory, they lie there.",
    ),
    _transfer(
        "in_ms",
        "copies in",
        "How long the host spends on copying an invoke's inputs to where the delegate computes, of all "
        "partitions together, until they are there; on WebGPU with a word read back, which tells that. "
        "From further invokes after the timed ones, like the following; the mean over the processes of each "
        "one's median.",
    ),
    _transfer("out_ms", "copies out", "The same of the outputs, once all kernels have ended."),
    _copied("in_bytes", "bytes in", "Bytes of these inputs: what crosses the border of CPU and device."),
    _copied("out_bytes", "bytes out", "The same of the outputs."),
    _transfer(
        "p50_bound_ms",
        "p50, bound buffers",
        "Median of invokes on buffers that hold the inputs already and keep the outputs, from start to end. "
        "What the device cannot reach there, it copies itself.",
    ),
    _transfer(
        "saved_ms",
        "saved by bound buffers",
        "The median of invokes end to end that take turns with these, less theirs: what zero copy saves.",
        better="higher",
    ),
    Metric(
        "caches.bytes",
        "bytes in caches",
        "bytes",
        "lower",
        "memory",
        "Files that the starts of the first tuning left in program caches that were empty: kernels, packed "
        "constants, recordings and choices of the delegate, and whatever drivers keep.",
        read=measured("cache_bytes"),
        text=text.byte_count,
        why_none=lambda _: "not recorded, or not all of it could be counted",
    ),
    Metric(
        "caches.init_saved_ms",
        "init saved by caches",
        "ms",
        "higher",
        "memory",
        "The init that finds the caches empty less the median of those that find them filled; none where the "
        "starts left nothing in caches.",
        read=_init_saved,
        text=text.milliseconds,
        why_none=_why_none_saved,
        unit_in_heading=True,
        void_if_wrong=True,
    ),
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
