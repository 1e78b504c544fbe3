"""A comparison as LiteRT's `EvaluationStageMetrics`, serialised: the file that Inference Diff writes.

The numbers of the fields are those of `evaluation_stages.proto` in TensorFlow.
"""

from __future__ import annotations

from typing import Final

from runtime.common.protobuf import integer, message, real32, real64
from runtime.tools.model_diff.comparing import Difference
from runtime.tools.model_diff.summaries import Summary

_INFERENCE_PROFILER: Final = 5
"""Field of `ProcessMetrics` that holds the metrics of this tool."""


def evaluation_metrics(found: Difference) -> bytes:
    """Return the message's bytes."""
    profiler = message(1, latency(found.reference.latency)) + message(2, latency(found.test.latency))
    for one in found.outputs:
        profiler += message(3, _accuracy(one.error))
    return integer(1, found.runs) + message(2, message(_INFERENCE_PROFILER, profiler))


def latency(summary: Summary) -> bytes:
    """Return a `LatencyMetrics`."""
    whole = (summary.last, summary.largest, summary.smallest, summary.total)
    fields = b"".join(integer(number, int(value)) for number, value in enumerate(whole, 1))
    average = real64(5, summary.average)
    return fields + average + integer(6, int(summary.deviation))


def _accuracy(summary: Summary) -> bytes:
    return (
        real32(1, summary.largest)
        + real32(2, summary.smallest)
        + real64(3, summary.average)
        + real32(4, summary.deviation)
    )
