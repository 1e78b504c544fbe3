"""Defines the levels: counts of processes, runs and seconds of a cell; `measure:` overrides single ones."""

from __future__ import annotations

from typing import Any, Final

from pydantic import ValidationError

from agent.wire.messages import MeasurePlan
from orchestrator.manifest.campaign import DEFAULT_SOFT_LIMIT_S

LEVELS: dict[str, MeasurePlan] = {
    "quick": MeasurePlan(level="quick"),
    "standard": MeasurePlan(
        level="standard",
        processes=5,
        warmup_runs=10,
        warmup_seconds=1.0,
        min_runs=130,
        min_seconds=2.0,
        max_seconds=30.0,
    ),
    "publish": MeasurePlan(
        level="publish",
        processes=10,
        warmup_runs=10,
        warmup_seconds=1.0,
        min_runs=662,
        min_seconds=10.0,
        max_seconds=120.0,
    ),
}
"""Counts of each level. `publish` times as many samples in each process as a p99 needs in the whole cell: the
floor is the measuring core's, and a test compares the two."""

"""The counts of docs/measuring.md. Chosen by the sample floors of percentiles: `quick` has enough samples for
p90 (90, of which 64 are needed), `publish` enough for p99 even in each process alone (662). More processes
give a narrower interval of p50 and take proportionally longer."""

_SLACK_PER_PROCESS_S: Final = 60.0
"""Seconds that one process may need besides its runs: start, load, cold compilation, outputs. Chosen; a
smaller value would end a slow compilation in a timeout where the level has many processes."""

_LONGEST_WARMUP_RATIO: Final = 3
"""How many times its planned seconds warm-up may last: the measuring loop stops it there, whether or not its
runs are done (`runtime.tools.benchmark`)."""


def soft_limit_s(plan: MeasurePlan) -> float:
    """How long one attempt may take where the file does not say: enough for every process at its cap."""
    process = _SLACK_PER_PROCESS_S + _LONGEST_WARMUP_RATIO * plan.warmup_seconds + plan.max_seconds
    return max(DEFAULT_SOFT_LIMIT_S, plan.processes * process)


_FIELDS = {
    ("warmup", "runs"): "warmup_runs",
    ("warmup", "min_seconds"): "warmup_seconds",
    ("timed", "min_runs"): "min_runs",
    ("timed", "max_runs"): "max_runs",
    ("timed", "min_seconds"): "min_seconds",
    ("timed", "max_seconds"): "max_seconds",
}


def plan(level: str, *measures: dict[str, Any]) -> MeasurePlan:
    """The level's counts, overridden by each `measure:` block in turn.

    Raises `ValueError` where a minimum exceeds its maximum.
    """
    values = LEVELS[level].model_dump()
    for measure in measures:
        if "processes" in measure:
            values["processes"] = measure["processes"]
        for (block, key), field in _FIELDS.items():
            if key in measure.get(block, {}):
                values[field] = measure[block][key]
    for low, high in (("min_runs", "max_runs"), ("min_seconds", "max_seconds")):
        if values[low] > values[high]:
            raise ValueError(
                f"timed.{low} {values[low]:g} exceeds timed.{high} {values[high]:g}"
                f" (level {level}); set timed.{high} too"
            )
    try:
        return MeasurePlan.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{first['loc'][0]}: {first['msg']}") from error
