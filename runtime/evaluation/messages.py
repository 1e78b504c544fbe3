"""Writes the protocol buffers of `benchmark_model`: its result, and a profile of operators.

The numbers of the fields are those of LiteRT's `benchmark_result.proto` and `profiling_info.proto`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from runtime.common.profile import ModelProfile
from runtime.common.protobuf import integer, message, real32

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
