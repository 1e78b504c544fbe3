"""Reads reports in JSON: those of `litert-benchmark` (CompiledModel), and profiles of Qualcomm AI Hub."""

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

from agent.wire.bounded import MAX_COUNT, is_figure
from agent.wire.measurement import Accuracy, Latency, Measurement

NOT_JUDGED: Final = "imported: its outputs were not compared with a reference"
NOT_TOLD: Final = "imported: the file does not have it"


class NotReadableError(ValueError):
    """A file is not what a tool writes, or is cut off; the text says what was expected."""


@dataclass(frozen=True, slots=True)
class ImportedResult:
    """One run of another tool. `model` and `device` are None where the file does not name them.

    `delegate`: how the model was run, as far as the file tells. `measurement` is None where the model did not
    run, of which `status` then is the file's word.
    """

    tool: str
    model: str | None
    delegate: str
    device: str | None
    measurement: Measurement | None
    status: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one run in a tool's file: times in ms, None where it has none; `memory_bytes` is a peak."""

    samples: int
    mean: float | None
    median: float | None = None
    p95: float | None = None
    init: float | None = None
    init_warm: float | None = None
    first: float | None = None
    memory_bytes: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)

    def measurement(self) -> Measurement:
        """Return the figures as a result has them. Raises `NotReadableError` for ones that no clock gives."""
        times = (self.mean, self.median, self.p95, self.init, self.init_warm, self.first)
        for value in times:
            if value is not None and not (is_figure(value) and value >= 0.0):
                raise NotReadableError(f"a time of {value} ms")
        if self.mean is None and self.median is None:
            raise NotReadableError("no inference time")
        if not (1 <= self.samples <= MAX_COUNT and 0 <= self.memory_bytes <= MAX_COUNT):
            raise NotReadableError(f"{self.samples} runs and {self.memory_bytes} bytes")
        named = {
            "init": self.init, "init_warm": self.init_warm, "first": self.first, "p50": self.median,
            "p90": None, "p95": self.p95, "p99": None, "mean": self.mean, "ci95": None,
        }  # fmt: skip
        latency = Latency.model_validate(
            named | {"missing": {name: NOT_TOLD for name, value in named.items() if value is None}}
        )
        return Measurement(
            latency_ms=latency,
            samples=self.samples,
            memory_peak_bytes=self.memory_bytes,
            accuracy=Accuracy(
                reference=None, max_abs=None, rel_l2=None, cosine=None, verdict=None, note=NOT_JUDGED
            ),
            delegation=None,
            settings={"processes": "1", **self.settings},
        )


LITERT_BENCHMARK: Final = "litert-benchmark"
AI_HUB: Final = "ai-hub"


def read_report(report: Any) -> Iterator[ImportedResult]:
    """Yield the one result of a report. Raises `NotReadableError` for another object, or missing figures."""
    if not isinstance(report, dict):
        raise NotReadableError("expected one JSON object")
    if isinstance(report.get("execution_summary"), dict):
        yield _ai_hub(report)
    elif isinstance(report.get("latency"), dict):
        yield _litert_benchmark(report)
    else:
        raise NotReadableError(
            "expected the JSON of litert-benchmark (--result_json, with 'latency') or an AI Hub profile "
            "(with 'execution_summary')"
        )


def _litert_benchmark(report: Mapping[str, Any]) -> ImportedResult:
    """Read a report of `litert-benchmark`, whose times are in ms."""
    latency = report["latency"]
    accelerators = report.get("accelerators")
    if isinstance(accelerators, list):
        accelerators = "+".join(map(str, accelerators))
    threads = report.get("num_threads")
    settings = {
        name: str(report[name]) for name in ("fully_accelerated", "signature") if report.get(name) is not None
    }
    figures = Figures(
        _whole(latency, "num_runs"), _number(latency, "avg_ms"), _number(latency, "median_ms"),
        _number(latency, "p95_ms"), init=_number(latency, "init_ms"),
        first=_number(latency, "warmup_first_ms"),
        settings=settings | ({"threads": str(threads)} if isinstance(threads, int) else {}),
    )  # fmt: skip
    model = report.get("model")
    # A report of Windows has backslashes.
    name = PurePosixPath(model.replace("\\", "/")).name if isinstance(model, str) else None
    return ImportedResult(
        LITERT_BENCHMARK, name, str(accelerators or "cpu").lower(), None, figures.measurement()
    )


def _ai_hub(report: Mapping[str, Any]) -> ImportedResult:
    """Read a profile of AI Hub (us, bytes); the service chose `estimated_inference_time`."""
    summary = report["execution_summary"]
    times = summary.get("all_inference_times")
    if not isinstance(times, list) or not times:
        times = [summary.get("estimated_inference_time")]
    if not all(isinstance(time, int | float) and not isinstance(time, bool) for time in times):
        raise NotReadableError("execution_summary has no inference time (all_inference_times, in us)")
    estimated = _number(summary, "estimated_inference_time", 1e-3)
    settings = {} if estimated is None else {"estimated_inference_ms": f"{estimated:g}"}
    detail = report.get("execution_detail")
    layers = detail if isinstance(detail, list) else []
    units = Counter(str(layer.get("compute_unit", "")).lower() for layer in layers if isinstance(layer, dict))
    settings |= {f"layers_{unit}": str(count) for unit, count in sorted(units.items()) if unit}
    memory = _number(summary, "estimated_inference_peak_memory") or 0.0
    figures = Figures(
        len(times), statistics.fmean(times) / 1e3, statistics.median(times) / 1e3,
        init=_number(summary, "first_load_time", 1e-3), init_warm=_number(summary, "warm_load_time", 1e-3),
        memory_bytes=round(memory), settings=settings,
    )  # fmt: skip
    delegate = units.most_common(1)[0][0] if units else "npu"
    device = report.get("device")
    name = report.get("model")
    return ImportedResult(
        AI_HUB,
        name if isinstance(name, str) else None,
        delegate or "npu",
        device if isinstance(device, str) else None,
        figures.measurement(),
    )


def _number(values: Mapping[str, Any], name: str, scale: float = 1.0) -> float | None:
    value = values.get(name)
    if value is None:
        return None
    # To Python, JSON's `true` is an int.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NotReadableError(f"{name} is {value!r}, not a number")
    return value * scale


def _whole(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise NotReadableError(f"{name} is {value!r}, not a whole number")
    return value
