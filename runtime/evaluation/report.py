"""The lines and the result of `benchmark_model`, in the forms that parsers of LiteRT's output read.

The numbers of messages' fields are those of LiteRT's `benchmark_result.proto` and `profiling_info.proto`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from runtime.common.litert_statistics import Statistics
from runtime.common.profile import ModelProfile
from runtime.common.protobuf import integer, message, real32
from runtime.evaluation.loop import StopRule
from runtime.measure.memory import resident_bytes

MIB: Final = 2**20
"""Bytes of LiteRT's MB of memory."""

MB: Final = 1e6
"""Bytes of LiteRT's MB of a file."""

_STATUS: Final = Path("/proc/self/status")


@dataclass(frozen=True, slots=True)
class Timings:
    """One benchmark: times in microseconds, memory in bytes as growth of the peak since the tool began."""

    init_us: int
    warmup: Statistics
    regular: Statistics
    model_bytes: int
    input_bytes: int
    init_bytes: int
    overall_bytes: int
    peak_bytes: int | None
    device_bytes: int | None


def delegate_line(title: str, delegated: int, total: int, partitions: int) -> str:
    """Return LiteRT's line on a delegate that was asked for."""
    if not delegated:
        return (
            f"Though {title} delegate is explicitly applied, the model graph will not be executed by the "
            "delegate."
        )
    if delegated == total and partitions == 1:
        return (
            f"Explicitly applied {title} delegate, and the model graph will be completely executed by the "
            "delegate."
        )
    return (
        f"Explicitly applied {title} delegate, and the model graph will be partially executed by the "
        f"delegate w/ {partitions} delegate kernels."
    )


def phase_line(rule: StopRule) -> str:
    """Return the line in front of the runs of a phase."""
    return (
        f"Running benchmark for at least {rule.min_runs} iterations and at least {rule.min_secs:g} seconds "
        f"but terminate if exceeding {rule.max_secs:g} seconds."
    )


def signature_lines(keys: Sequence[str]) -> Iterator[str]:
    """Yield the list of a model's signatures."""
    yield f"The Model contains {len(keys)} signature key(s)."
    if keys:
        yield "They are listed below: "
    for key in keys:
        yield f"-> Signature Key: {key}"


def summary_lines(found: Timings) -> Iterator[str]:
    """Yield the summary and the memory. The peak never falls and has no bytes of a GPU, which follow it."""
    first = found.warmup.samples[0] if found.warmup.samples else 0
    yield (
        f"Inference timings in us: Init: {found.init_us}, First inference: {first}, "
        f"Warmup (avg): {found.warmup.avg:g}, Inference (avg): {found.regular.avg:g}"
    )
    yield (
        "Note: as the benchmark tool itself affects memory footprint, the following is only APPROXIMATE to "
        "the actual memory footprint of the model at runtime. Take the information at your discretion."
    )
    yield (
        f"Memory footprint delta from the start of the tool (MB): init={found.init_bytes / MIB:g} "
        f"overall={found.overall_bytes / MIB:g}"
    )
    yield f"Resident memory now (MB): {resident_bytes() / MIB:g}"
    if found.device_bytes is not None:
        yield f"Memory of the model on its device (MB): {found.device_bytes / MIB:g}"
    if found.peak_bytes is not None:
        yield f"Overall peak memory footprint (MB) via periodic monitoring: {found.peak_bytes / MIB:g}"
        yield from _status_lines()


def _status_lines() -> Iterator[str]:
    lines = _STATUS.read_text().splitlines() if _STATUS.exists() else ()
    if not lines:
        yield f"Memory status at the end of exeution: not told by this system ({_STATUS} is missing)"
        return
    kib = {
        name: int(rest.split()[0])
        for name, _, rest in (line.partition(":") for line in lines)
        if name in {"VmRSS", "RssAnon", "RssFile", "RssShmem"}
    }
    shared = kib.get("RssFile", 0) + kib.get("RssShmem", 0)
    yield "Memory status at the end of exeution:"  # LiteRT's spelling, which parsers look for
    yield f"- VmRSS              : {kib.get('VmRSS', 0) // 1024} MB"
    yield f"+ RssAnnon           : {kib.get('RssAnon', 0) // 1024} MB"
    yield f"+ RssFile + RssShmem : {shared // 1024} MB"


def samples_document(found: Timings) -> dict[str, Any]:
    """Return what LiteRT's result leaves out: the time of every run, and how its figures follow from them."""
    return {
        "samples_us": {"warmup": list(found.warmup.samples), "regular": list(found.regular.samples)},
        "definitions": {
            "stddev_ms": "the population's standard deviation, cut to whole microseconds",
            "median_ms, p5_ms, p95_ms": "the element at floor(n * p / 100) of the n sorted times of runs",
            "first_inference_ms": "the first run of the warm-up",
            "model_throughput_in_mb_per_sec": "bytes of the inputs of a run over avg_ms",
        },
    }


def document(name: str, found: Timings) -> dict[str, Any]:
    """Return LiteRT's `BenchmarkResult` by its names of fields."""
    regular, warmup = found.regular, found.warmup
    samples: Sequence[int] = regular.samples or (0,)
    first = warmup.samples[0] if warmup.samples else 0
    microseconds = {
        "avg": regular.avg,
        "min": min(samples),
        "max": max(samples),
        "stddev": regular.std,
        "median": regular.percentile(50),
        "p5": regular.percentile(5),
        "p95": regular.percentile(95),
        "init": found.init_us,
        "first_inference": first,
        "average_warm_up": warmup.avg,
    }
    throughput = found.input_bytes / regular.avg if regular.avg else 0.0  # bytes in a microsecond are MB/s
    return {
        "name": name,
        "latency_metrics": {f"{key}_ms": value / 1000 for key, value in microseconds.items()},
        "memory_metrics": {
            "init_footprint_kb": found.init_bytes // 1024,
            "overall_footprint_kb": found.overall_bytes // 1024,
            "peak_mem_mb": None if found.peak_bytes is None else found.peak_bytes / MIB,
        },
        "misc_metrics": {
            "model_size_mb": found.model_bytes / MB,
            "num_runs": len(regular.samples),
            "num_warmup_runs": len(warmup.samples),
            "model_throughput_in_mb_per_sec": throughput,
        },
    }


_LATENCY: Final = ("avg", "min", "max", "stddev", "median", "p5", "p95", "init", "first_inference")
_LATENCY_FIELDS: Final = (*(f"{name}_ms" for name in _LATENCY), "average_warm_up_ms")
_NS_PER_US: Final = 1000
"""Nanoseconds of a microsecond, the unit of a profile."""


def result_message(found: Mapping[str, Any]) -> bytes:
    """Return a `BenchmarkResult` of the document of `runtime.evaluation.report`."""
    times, memory, misc = (found[f"{part}_metrics"] for part in ("latency", "memory", "misc"))
    footprint = integer(1, memory["init_footprint_kb"]) + integer(2, memory["overall_footprint_kb"])
    if memory["peak_mem_mb"] is not None:
        footprint += real32(3, memory["peak_mem_mb"])
    counts = (
        real32(1, misc["model_size_mb"])
        + integer(2, misc["num_runs"])
        + integer(3, misc["num_warmup_runs"])
        + real32(4, misc["model_throughput_in_mb_per_sec"])
    )
    latency = b"".join(real32(number, times[name]) for number, name in enumerate(_LATENCY_FIELDS, 1))
    name = message(1, found["name"].encode()) if found["name"] else b""
    return name + message(2, latency) + message(3, footprint) + message(4, counts)


def profile_message(name: str, profile: ModelProfile) -> bytes:
    """Return a `BenchmarkProfilingData`: the stages of the start, the operators, and a delegate's kernels.

    Of each time it has the first and the mean; single runs are not kept.
    """
    start = _subgraph((stage, stage, ns, ns) for stage, ns in profile.stages_ns.items())
    operators = (
        (one.name, f"[{one.tensors}]:{one.index}", one.first_ns, one.mean_ns)
        for one in profile.operators
        if one.place != "none"
    )
    runs = _subgraph(operators)
    kernels = [row for row in profile.rows if row.place == "kernel"]
    if kernels:
        rows = (("DelegateOpInvoke", row.name, row.first_ns, row.mean_ns) for row in kernels)
        runs += message(2, message(1, b"Delegate") + _nodes(rows, 2))
    return message(1, name.encode()) + message(2, start) + message(3, runs)


_Row = tuple[str, str, float, float]
"""Node type, name, first and mean time in ns."""


def _subgraph(rows: Iterable[_Row]) -> bytes:
    return message(1, message(1, b"Primary graph") + integer(2, 0) + _nodes(rows, 3))


def _nodes(rows: Iterable[_Row], field: int) -> bytes:
    return b"".join(message(field, _node(order, *row)) for order, row in enumerate(rows))


def _node(order: int, kind: str, name: str, first_ns: float, mean_ns: float) -> bytes:
    times = integer(1, round(first_ns / _NS_PER_US)) + integer(3, round(mean_ns / _NS_PER_US))
    node = message(1, kind.encode()) + message(2, times) + integer(4, 1)
    return node + message(5, name.encode()) + integer(6, order)
