"""The plan as JSON. docs/model-tools.md describes it; `SCHEMA` counts its incompatible changes."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

from runtime.delegates.plan import PartitionPlan
from runtime.tools.model_plan.advice import suitability
from runtime.tools.model_plan.model import ModelPlan, PlannedStep

FEW_WORK_ITEMS: Final = 10_000
"""Work-items below which a launch counts as small: a twenty-seventh of the 270,336 that an H200 holds at the
same time. Larger counts more launches."""


@dataclass(frozen=True, slots=True)
class SmallLaunch:
    """A launch with few work-items: node, partition, function, and its share of all arithmetic, 0 to 1."""

    partition: int
    node: int
    operators: tuple[int, ...]
    function: str
    work_items: int
    flops: int
    share: float


@dataclass(frozen=True, slots=True)
class Occupancy:
    """`small` of `launches` have fewer than `limit` work-items, and `small_flops` of all `flops`.

    `small_launches` are these, the one with most arithmetic first.
    """

    launches: int
    median_work_items: float
    limit: int
    small: int
    flops: int
    small_flops: int
    resident_threads: int
    small_launches: tuple[SmallLaunch, ...]

    @property
    def small_share(self) -> float:
        """The share of the arithmetic that small launches do, 0 to 1."""
        return self.small_flops / self.flops if self.flops else 0.0


def occupancy(plan: ModelPlan) -> Occupancy | None:
    """Count the launches of all partitions; None for a CPU device, and where nothing is launched."""
    launches = [launch for partition in plan.partitions for launch in partition.launches]
    if plan.device.device_class != "gpu" or not launches:
        return None
    flops = sum(launch.flops for launch in launches)
    small = sorted(_small(plan, flops), key=lambda one: -one.flops)
    return Occupancy(
        launches=len(launches),
        median_work_items=median(launch.work_items for launch in launches),
        limit=FEW_WORK_ITEMS,
        small=len(small),
        flops=flops,
        small_flops=sum(one.flops for one in small),
        resident_threads=plan.device.resident_threads,
        small_launches=tuple(small),
    )


def _small(plan: ModelPlan, flops: int) -> Iterator[SmallLaunch]:
    for number, partition in enumerate(plan.partitions):
        for node in partition.nodes:
            for launch in node.launches:
                if launch.work_items < FEW_WORK_ITEMS:
                    share = launch.flops / flops if flops else 0.0
                    yield SmallLaunch(
                        number, node.position, node.operators, launch.function, launch.work_items,
                        launch.flops, share,
                    )  # fmt: skip


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
        node["launches"] = [
            # `asdict` leaves properties out.
            asdict(launch)
            | {"work_items": launch.work_items, "work_group": launch.work_group}
            | {"flops_per_byte": launch.intensity}
            for launch in planned.launches
        ]
    return found
