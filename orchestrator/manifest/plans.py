"""Levels: how often a cell is measured. Single counts are overridden under `measure:`."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from agent.wire.messages import MeasurePlan

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

_LEAST_LIMIT_S = 900.0
_SLACK_PER_PROCESS_S = 60.0
"""Start, load, cold compile and outputs of one process."""


def soft_limit_s(plan: MeasurePlan) -> float:
    """How long one attempt may take where the file does not say: enough for every process at its cap."""
    process = _SLACK_PER_PROCESS_S + 3 * plan.warmup_seconds + plan.max_seconds
    return max(_LEAST_LIMIT_S, plan.processes * process)


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
