"""The noise of a device, from an A/A series: sessions that measure one delegate against itself, by blocks.

Two equal things have the ratio 1; by how much the paired ratios of the sessions differ from it is the *noise
floor*. By how much the median itself differs from session to session is the *session variance*, which is in
every comparison of two runs that were not interleaved.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import stdev
from typing import Final

from agent.wire.plan import MeasurePlan
from orchestrator.manifest.campaign import Campaign, DelegateEntry, DeviceSelector, ModelEntry
from orchestrator.manifest.plans import LEVELS
from orchestrator.results.device_noise import DeviceNoise
from orchestrator.results.records import CellRecord, void_reason
from orchestrator.results.speedups import counted_latency, stored_ratio

FIRST: Final = "a"
AGAIN: Final = "a-again"
"""Names of the two equal delegates; the first is the baseline."""


def noise_series(
    device_id: str, kind: str, model: Path, sessions: int, plan: MeasurePlan = LEVELS["standard"]
) -> Campaign:
    """Return the campaign: each session is a model of its own, so that it has blocks of its own."""
    # The series has no campaign file: what one would say is digested instead.
    identity = json.dumps([device_id, kind, sessions, plan.model_dump(mode="json")], sort_keys=True)
    return Campaign(
        name=f"noise-{device_id}",
        level=plan.level,
        labels={"purpose": "noise"},
        models=tuple(ModelEntry(f"session-{n + 1}", str(model), plan=plan) for n in range(sessions)),
        delegates=(DelegateEntry(FIRST, kind), DelegateEntry(AGAIN, kind)),
        devices=(DeviceSelector(name=device_id),),
        exclude=(),
        baseline_delegate=FIRST,
        reuse="never",
        manifest_sha256=hashlib.sha256(identity.encode()).hexdigest(),
    )


FEWEST_SESSIONS: Final = 3
"""Sessions below which there is no floor: with fewer, a lucky one hides the noise."""


def noise_of(cells: Sequence[CellRecord], baseline: str, measured_at: str) -> DeviceNoise | str:
    """Compute the noise from the cells of an A/A series, or why it gives none. Void sessions do not count."""
    by_model: dict[str, list[CellRecord]] = {}
    for cell in cells:
        by_model.setdefault(cell.model, []).append(cell)
    sessions = [found for pair in by_model.values() if (found := _session(pair, baseline)) is not None]
    if len(sessions) < FEWEST_SESSIONS:
        ended = next((f": {c.reason.code}: {c.reason.text}" for c in cells if c.reason is not None), "")
        return f"{len(sessions)} of {len(by_model)} sessions gave a ratio; it takes {FEWEST_SESSIONS}{ended}"
    logs = [math.log(one.ratio) for one in sessions]
    return DeviceNoise(
        # About 0, not about their mean: the true ratio is 1, and a bias of one arm is noise, too.
        floor=math.expm1(math.sqrt(math.fsum(value**2 for value in logs) / len(logs))),
        session_sd=math.expm1(stdev(math.log(one.median_ms) for one in sessions)),
        sessions=len(sessions),
        delegate=cells[0].delegate_kind,
        measured_at=measured_at,
    )


@dataclass(frozen=True, slots=True)
class _Session:
    ratio: float
    median_ms: float


def _session(pair: Sequence[CellRecord], baseline: str) -> _Session | None:
    base = next((cell for cell in pair if cell.delegate == baseline), None)
    again = next((cell for cell in pair if cell.delegate != baseline), None)
    if base is None or again is None:
        return None
    latency, ratio = counted_latency(base), stored_ratio(again)
    void = any(void_reason(cell) is not None for cell in pair)
    if latency is None or latency.p50 is None or ratio is None or void:
        return None
    return _Session(ratio.median, latency.p50)
