"""Estimates how far launches fill a large GPU: work-items per launch, share of arithmetic in small ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Final

from runtime.tools.model_plan.model import ModelPlan

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
