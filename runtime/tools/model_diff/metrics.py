"""A comparison as LiteRT's `EvaluationStageMetrics`, serialised: the file that Inference Diff writes.

The numbers of the fields are those of `evaluation_stages.proto` in TensorFlow.
"""

from __future__ import annotations

import struct
from typing import Final

from runtime.tools.model_diff.comparing import Difference
from runtime.tools.model_diff.summaries import Summary

_VARINT, _EIGHT_BYTES, _MESSAGE, _FOUR_BYTES = 0, 1, 2, 5
"""Wire types of protocol buffers."""

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
    average = _key(5, _EIGHT_BYTES) + struct.pack("<d", summary.average)
    return fields + average + integer(6, int(summary.deviation))


def _accuracy(summary: Summary) -> bytes:
    return (
        real32(1, summary.largest)
        + real32(2, summary.smallest)
        + _key(3, _EIGHT_BYTES)
        + struct.pack("<d", summary.average)
        + real32(4, summary.deviation)
    )


def integer(number: int, value: int) -> bytes:
    """Return a field that holds an integer of at least 0."""
    return _key(number, _VARINT) + _varint(value)


def real32(number: int, value: float) -> bytes:
    """Return a field that holds a float32."""
    return _key(number, _FOUR_BYTES) + struct.pack("<f", value)


def message(number: int, content: bytes) -> bytes:
    """Return a field that holds a message."""
    return _key(number, _MESSAGE) + _varint(len(content)) + content


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    """Return an integer of at least 0, seven bits to a byte, the lowest first."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*parts, value))
