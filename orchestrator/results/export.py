"""Data files beside the pages: the stable results format as JSON and CSV, and a cell with its raw samples."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

from agent.wire.messages import ProcessSamples
from orchestrator.results import format as text
from orchestrator.results.records import AttemptRecord, CampaignRecord, CellRecord

CSV_COLUMNS = (
    "campaign", "model", "delegate", "device", "level", "status", "reason.code", "reason.text",
    "delegation.status", "delegation.delegated_ops", "delegation.total_ops", "delegation.partitions",
    "latency_ms.init", "latency_ms.init_warm", "latency_ms.first", "latency_ms.p50", "latency_ms.p90",
    "latency_ms.p99", "latency_ms.mean", "latency_ms.ci95.low", "latency_ms.ci95.high", "samples",
    "memory_bytes.peak", "accuracy.reference", "accuracy.max_abs", "accuracy.rel_l2", "accuracy.cosine",
    "accuracy.verdict", "environment_id", "labelled.metric", "labelled.samples", "labelled.right",
    "labelled.share", "labelled.at_least", "labelled.verdict",
)  # fmt: skip


def to_json(value: Any, indent: int | None = 1) -> str:
    """JSON text, one trailing newline; a NaN is an error. `indent` None: on one line."""
    separators = None if indent else (",", ":")
    return json.dumps(value, indent=indent, separators=separators, allow_nan=False) + "\n"


def results_json(cells: Iterable[CellRecord]) -> str:
    """The array of `farm results --format json`."""
    return to_json([cell.to_json() for cell in cells])


def results_csv(cells: Iterable[CellRecord]) -> str:
    """One row per cell, nested fields joined with a point; null is empty, formulas are defused."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(CSV_COLUMNS)
    for cell in cells:
        flat = _flatten(cell.to_json())
        writer.writerow([_csv_value(flat.get(column)) for column in CSV_COLUMNS])
    return buffer.getvalue()


def campaign_json(campaign: CampaignRecord) -> dict[str, Any]:
    """The one JSON object of a campaign (docs/results-format.md): `farm status`, the endpoint, the site."""
    return {
        "campaign_id": campaign.campaign_id,
        "name": campaign.name,
        "submitted_at": campaign.submitted_at.isoformat(),
        "level": campaign.level,
        "baseline": campaign.baseline,
        "manifest_sha256": campaign.manifest_sha256,
        "models": list(campaign.models),
        "delegates": list(campaign.delegates),
        "labels": dict(campaign.labels),
        "priority": campaign.priority,
        "paused": campaign.paused,
        "counts": dict(campaign.counts),
    }


def cell_json(cell: CellRecord, processes: Sequence[ProcessSamples]) -> str:
    """One cell: its result, what it was measured with and in, its attempts, and every raw sample in ns."""
    m = cell.measurement
    return to_json(
        {
            "cell_id": cell.cell_id,
            "campaign_id": cell.campaign_id,
            "result": cell.to_json(),
            "model_sha256": cell.model_sha256,
            "model_bytes": cell.model_bytes,
            "delegate_kind": cell.delegate_kind,
            "delegate_options": cell.delegate_options,
            "device_name": cell.device_name,
            "reused_from": cell.reused_from,
            "finished_at": None if cell.finished_at is None else cell.finished_at.isoformat(),
            "settings": {} if m is None else m.settings,
            "warnings": [] if m is None else m.warnings,
            "samples_sha256": None if m is None else m.samples_sha256,
            "environment": cell.environment,
            "facts": cell.facts,
            "attempts": [_attempt(a) for a in cell.attempts],
            "processes": [p.model_dump(mode="json") for p in processes],
        },
        indent=None,
    )


def _attempt(attempt: AttemptRecord) -> dict[str, Any]:
    return {
        "attempt_id": attempt.attempt_id,
        "number": attempt.number,
        "device_id": attempt.device_id,
        "state": attempt.state,
        "reason": None if attempt.reason is None else attempt.reason.model_dump(mode="json"),
        "started_at": None if attempt.started_at is None else attempt.started_at.isoformat(),
        "ended_at": None if attempt.ended_at is None else attempt.ended_at.isoformat(),
        "duration_ns": attempt.duration_ns,
        "log_tail": attempt.log_tail,
    }


def _flatten(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, entry in value.items():
        name = f"{prefix}{key}"
        if isinstance(entry, dict):
            flat |= _flatten(entry, f"{name}.")
        elif name == "latency_ms.ci95" and entry is not None:
            flat |= {f"{name}.low": entry[0], f"{name}.high": entry[1]}
        else:
            flat[name] = entry
    return flat


def _csv_value(value: Any) -> Any:
    return text.csv_text(value) if isinstance(value, str) else value
