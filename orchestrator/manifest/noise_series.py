"""The campaign of an A/A series: one delegate against itself on one device, in several sessions."""

import hashlib
import json
from pathlib import Path
from typing import Final

from agent.wire.plan import MeasurePlan
from orchestrator.manifest.campaign import Campaign, DelegateEntry, DeviceSelector, ModelEntry
from orchestrator.manifest.plans import LEVELS

FIRST: Final = "a"
AGAIN: Final = "a-again"
"""Names of the two equal delegates; the first is the baseline."""


def noise_series(
    device_id: str, kind: str, model: Path, sessions: int, plan: MeasurePlan = LEVELS["standard"]
) -> Campaign:
    """Return the campaign: each session is a model of its own, so that it has blocks of its own."""
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
