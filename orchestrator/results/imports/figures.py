"""An imported result, and the conversion of another tool's figures to a measurement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from agent.wire.bounded import MAX_COUNT
from agent.wire.measurement import Accuracy, Latency, Measurement

NOT_JUDGED: Final = "imported: its outputs were not compared with a reference"
NOT_TOLD: Final = "imported: the file does not have it"


class NotReadableError(ValueError):
    """A file is not what a tool writes, or is cut off; the text says what was expected."""


@dataclass(frozen=True, slots=True)
class ImportedResult:
    """One run of another tool. `model` and `device` are None where the file does not name them.

    `delegate`: how the model was run, as far as the file tells; `settings`: what else it says.
    """

    tool: str
    model: str | None
    delegate: str
    device: str | None
    measurement: Measurement


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run in a tool's file: times in ms, None if it has none; `memory_bytes` is a peak."""

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
            if value is not None and not (math.isfinite(value) and value >= 0.0):
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
