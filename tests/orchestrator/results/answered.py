"""Campaigns for tests of the answer: the demo's nine models on three delegates, and cells one at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from agent.wire.measurement import Delegation, Quality, Ratio, baseline_id
from agent.wire.messages import Reason, ReasonCode
from orchestrator.results.records import AttemptRecord, CellRecord
from tests.orchestrator.cli.records import cell, ended

PROCESSOR = "AMD EPYC"
ATTEMPT = AttemptRecord("attempt", 1, "host-cpu", "done", None, None, None, 14_000_000_000)

DEMO = (
    ("face_detection_short_range", 0.709, 1.23, 0.28),
    ("face_landmark", 0.661, 0.79, 0.17),
    ("hand_landmark_lite", 4.1, 1.2, 0.2),
    ("torchvision_mobilenet_v2", 5.02, 1.5, 0.21),
    ("torchvision_mobilenet_v3_small", 1.18, 0.99, 0.22),
    ("torchvision_resnet18", 20.2, 1.82, 0.385),
    ("torchvision_squeezenet1_1", 4.41, 1.6, 0.3),
    ("torchvision_efficientnet_b0", 7.31, 1.03, 0.23),
    ("torchvision_mobilenet_v2__static_int8", 1.9, 0.413, 0.062),
)
"""Model, the baseline's median in ms, and the ratios of `gpu` and `cpu` over it."""


def measured(
    model: str = "net",
    delegate: str = "gpu",
    p50: float = 2.0,
    *,
    half: float | None = 0.02,
    ratio: float | None = None,
    ratio_half: float | None = 0.02,
    blocks: int = 4,
    start: tuple[float, float] = (10.0, 8.0),
    verdict: str | None = "pass",
    void: Sequence[str] = (),
    delegation: Delegation | None = None,
) -> CellRecord:
    """Build a finished cell on a device of this host; `half` and `ratio_half` are half widths of
    logarithms.
    """
    interval = None if half is None else (p50 * math.exp(-half), p50 * math.exp(half))
    device = "opencl-0" if delegate == "gpu" else "host-cpu"
    one = cell(model, delegate, p50=p50, ci95=interval, verdict=verdict, device=device, delegation=delegation)
    assert one.measurement is not None
    latency = one.measurement.latency_ms.model_copy(update={"init": start[0], "init_warm": start[1]})
    quality = Quality(
        void=tuple(void), blocks=blocks, rounds=7 * blocks, repeated=2, alternating=True, stopped="decided"
    )
    changed = {
        "ratio": None if ratio is None else paired(ratio, ratio_half, blocks),
        "latency_ms": latency,
        "quality": quality,
    }
    return replace(
        one,
        device_name=PROCESSOR + (" (OpenCL on CPU)" if delegate == "gpu" else ""),
        measurement=one.measurement.model_copy(update=changed),
        finished_at=datetime(2026, 11, 23, 8, 6, tzinfo=UTC),
        attempts=(ATTEMPT,),
    )


def paired(median: float, half: float | None = 0.02, blocks: int = 4) -> Ratio:
    """Build a ratio over `litert` of this host."""
    return Ratio(
        against="litert@host-cpu",
        baseline_id=baseline_id("litert", {}),
        device_id="host-cpu",
        median=median,
        ci95=None if half is None else (median * math.exp(-half), median * math.exp(half)),
        blocks=blocks,
        seed=1,
        spread=None if half is None else half * 0.63,
    )


def demo() -> list[CellRecord]:
    """Build the demo's cells, all of them right, one of them open."""
    found = []
    for place, (model, base, gpu, cpu) in enumerate(DEMO):
        whole = Delegation(status="full", delegated_ops=60 + place, total_ops=60 + place, partitions=1)
        half = 0.02 + 0.004 * place
        found += [
            measured(
                model, "cpu", base / cpu, half=0.05, ratio=cpu, ratio_half=half, start=(3.0 + 2 * place, 3.0)
            ),
            measured(
                model, "gpu", base / gpu, half=0.05, ratio=gpu, ratio_half=half,
                start=(4000.0 + 700 * place, 90.0 + 10 * place), delegation=whole,
            ),
            measured(
                model, "litert", base, half=0.005 + 0.003 * place, start=(3.0 + 8 * place, 3.0 + 4 * place)
            ),
        ]  # fmt: skip
    return found


def failed(model: str, delegate: str, text: str = "operator 3 RFFT2D has no kernel") -> CellRecord:
    """Build a cell whose delegate cannot run the model."""
    return replace(
        ended(model, delegate, "unsupported", ReasonCode.UNSUPPORTED_OPERATOR, text), device_name=PROCESSOR
    )


def wrong(model: str, delegate: str) -> CellRecord:
    """Build a cell with a wrong output."""
    reason = Reason(code=ReasonCode.WRONG_OUTPUT, text="rel_l2 0.5 > 0.0001")
    return replace(measured(model, delegate, verdict="fail", ratio=9.0), status="failed", reason=reason)
