"""What may be said of a speed-up."""

from __future__ import annotations

import pytest

from agent.wire.messages import Latency
from orchestrator.results.speedups import Baselines, geometric_mean, speedup, speedup_ratio
from orchestrator.site.cell_view import cell_view
from tests.orchestrator.site import records
from tests.orchestrator.site.records import HOST, POCL


def _cell(delegate: str, p50: float | None, ci95: tuple[float, float] | None = None, **changes):
    raw = records.processes("any", 1.0, count=1, samples=12)
    made = records.measurement(raw, delegate, 3, changes.pop("verdict", "pass"))
    latency = Latency(
        init=1, init_warm=1, first=1, p50=p50, p90=None, p99=None, mean=p50, ci95=ci95,
        missing={} if p50 else {"p50": "too few"},
    )  # fmt: skip
    device = changes.pop("device", POCL if delegate == "gpu" else HOST)
    return records.cell(
        "c", "m", delegate, device, measurement=made.model_copy(update={"latency_ms": latency}), **changes
    )


BASE = _cell("litert", 2.0, (1.9, 2.1))


@pytest.mark.parametrize(
    ("p50", "ci95", "verdict", "tone", "shown"),
    [
        (1.0, (0.9, 1.1), "faster", "faster-much", "2.00"),
        (1.8, (1.75, 1.85), "faster", "faster", "1.11"),
        (1.95, (1.89, 2.0), "overlap", "similar", "1.03"),
        (2.2, (2.15, 2.3), "slower", "slower", "0.91"),
        (8.0, (7.9, 8.1), "slower", "slower-much", "0.25"),
        (1.0, None, "unjudged", "unjudged", "2.00"),
    ],
)
def test_speedup_is_called_faster_only_where_the_intervals_part(p50, ci95, verdict, tone, shown):
    cell = _cell("gpu", p50, ci95)
    assert speedup(cell, BASE).verdict == verdict
    found = cell_view(cell, BASE).speedup
    assert (found.tone, found.text) == (tone, f"{shown}\u00d7")
    assert found.against == f"litert @ {HOST}"


@pytest.mark.parametrize(
    "cell",
    [
        _cell("gpu", 1.0, verdict="fail"),
        _cell("gpu", 1.0, status="failed"),
        _cell("gpu", None),
        records.cell("c", "m", "gpu", POCL, "failed"),
    ],
    ids=["wrong output", "failed", "too few samples", "nothing measured"],
)
def test_no_speedup_without_a_counted_number(cell):
    assert speedup(cell, BASE) is None
    assert speedup_ratio(BASE, cell) is None


def test_baseline_is_on_the_same_device_or_on_the_only_other_one():
    here = _cell("litert", 2.0, device=POCL)
    both = Baselines.among("litert", [BASE, here])
    assert both.of(_cell("gpu", 1.0)) is here
    assert both.of(_cell("gpu", 1.0, device="other/opencl-0")) is None, "two candidates, neither is right"
    assert Baselines.among("litert", [BASE]).of(_cell("gpu", 1.0)) is BASE
    assert Baselines.among(None, [BASE]).of(_cell("gpu", 1.0)) is None
    assert speedup(BASE, BASE) is None


def test_geometric_mean():
    assert geometric_mean([2.0, 0.5, 1.0]) == pytest.approx(1.0)
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([]) is None
