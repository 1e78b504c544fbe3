"""The plan as JSON. docs/model-tools.md describes it; `SCHEMA` counts its incompatible changes."""

from dataclasses import asdict
from typing import Any, Final

from runtime.delegates.plan import PartitionPlan, PlannedKernel
from runtime.tools.model_plan.advice import suitability
from runtime.tools.model_plan.model import ModelPlan, PlannedStep
from runtime.tools.model_plan.occupancy import occupancy

SCHEMA: Final = 1
"""The version of the document. It grows where a field goes or changes its meaning; readers of an older
number must not be given a newer document unseen."""


def document(plan: ModelPlan, file: str) -> dict[str, Any]:
    """Return the whole plan as `json.dumps` takes it."""
    filled, found = occupancy(plan), suitability(plan)
    return {
        "schema": SCHEMA,
        "file": file,
        "delegate": plan.delegate,
        "device": asdict(plan.device),
        "settings": dict(plan.settings),
        "delegation": {
            "status": plan.report.status,
            "delegated_ops": plan.report.delegated_ops,
            "total_ops": plan.report.total_ops,
            "partitions": plan.report.partitions,
        },
        "obstacle": plan.obstacle,
        "operators": [asdict(operator) for operator in plan.operators],
        "steps": [_step(step) for step in plan.steps],
        "totals": totals(plan),
        "occupancy": None if filled is None else asdict(filled) | {"small_share": filled.small_share},
        "advice": [asdict(piece) for piece in found.pieces],
        "verdict": {"word": found.verdict, "text": found.text, "operators": found.operators}
        | {"cpu_share": found.cpu_share},
    }


def totals(plan: ModelPlan) -> dict[str, int]:
    """Return sums over all partitions; bytes and operations of one run."""
    launches = [launch for partition in plan.partitions for launch in partition.launches]
    return {
        "nodes": sum(len(partition.nodes) for partition in plan.partitions),
        "launches": len(launches),
        "flops": sum(launch.flops for launch in launches),
        "bytes": sum(launch.bytes for launch in launches),
        "arena_bytes": sum(partition.arena_bytes for partition in plan.partitions),
        "constant_bytes": sum(partition.constant_bytes for partition in plan.partitions),
    }


def _step(step: PlannedStep) -> dict[str, Any]:
    found: dict[str, Any] = {"runs_on": "cpu" if step.on_cpu else "delegate", "operators": step.operators}
    if step.failure:
        found["failure"] = step.failure
    if step.plan is not None:
        found["plan"] = _partition(step.plan)
    return found


def _partition(plan: PartitionPlan) -> dict[str, Any]:
    found = asdict(plan)
    for node, planned in zip(found["nodes"], plan.nodes, strict=True):
        node["launches"] = [asdict(launch) | _derived(launch) for launch in planned.launches]
    return found


def _derived(launch: PlannedKernel) -> dict[str, Any]:
    return {
        "work_items": launch.work_items,
        "work_group": launch.work_group,
        "flops_per_byte": launch.intensity,
    }
