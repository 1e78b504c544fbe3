"""Cells for tests of tables and texts: finished, unsupported, struck out, with or without an interval."""

from __future__ import annotations

from dataclasses import replace

from agent.wire.measurement import Accuracy, Delegation, Fallback, Latency, Measurement
from agent.wire.messages import Reason, ReasonCode
from orchestrator.results.records import CellRecord


def latency(p50: float | None, ci95: tuple[float, float] | None = None) -> Latency:
    missing = {"p99": "90 samples; p99 needs 662"}
    if p50 is None:
        missing["p50"] = "4 samples; p50 needs 11"
    if ci95 is None:
        missing["ci95"] = "1 process; the interval needs 3"
    return Latency(
        init=10.0, init_warm=8.0, first=3.0, p50=p50, p90=p50, p99=None, mean=p50, ci95=ci95, missing=missing
    )


def cell(
    model: str = "net",
    delegate: str = "cpu",
    *,
    p50: float | None = 2.0,
    ci95: tuple[float, float] | None = (1.9, 2.1),
    verdict: str | None = "pass",
    delegation: Delegation | None = None,
    device: str = "host-cpu",
    level: str = "quick",
) -> CellRecord:
    """Build a finished cell."""
    accuracy = Accuracy(
        reference="litert", max_abs=1e-6, rel_l2=2e-7, cosine=1.0, verdict=verdict, rule="float, fp32"
    )
    measurement = Measurement(
        latency_ms=latency(p50, ci95),
        samples=90,
        memory_peak_bytes=5_000_000,
        accuracy=accuracy,
        delegation=delegation,
        settings={"threads": "2"},
    )
    wrong = verdict == "fail"
    return CellRecord(
        cell_id=f"{model}-{delegate}-{device}-{level}",
        campaign="demo",
        campaign_id="demo-1",
        model=model,
        model_sha256="ab" * 32,
        model_bytes=1_234_567,
        delegate=delegate,
        delegate_kind=delegate,
        delegate_options={},
        device=device,
        device_name="A CPU",
        level=level,
        status="failed" if wrong else "done",
        reason=Reason(code=ReasonCode.WRONG_OUTPUT, text="rel_l2 0.5 > 0.0001") if wrong else None,
        measurement=measurement,
        environment_id="0123456789ab",
        environment={"cpu": "x"},
    )


def ended(model: str, delegate: str, status: str, code: ReasonCode, text: str) -> CellRecord:
    """Build a cell without a measurement."""
    return replace(
        cell(model, delegate), status=status, reason=Reason(code=code, text=text), measurement=None
    )


def partly(model: str) -> CellRecord:
    """Build a cell whose delegate left one operator to the CPU."""
    fallback = Fallback(index=7, op="CUMSUM", reason="no such kernel")
    report = Delegation(status="partial", delegated_ops=69, total_ops=70, partitions=2, fallbacks=(fallback,))
    return cell(model, "gpu", p50=1.0, ci95=(0.9, 1.1), delegation=report, device="gpu-0")
