"""Defines the levels: counts of processes, runs and seconds of a cell; `measure:` overrides single ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from agent.wire.messages import MeasurePlan, ThroughputPlan
from orchestrator.config.limits import size_text
from orchestrator.errors import UsageError
from orchestrator.manifest.campaign import DEFAULT_SOFT_LIMIT_S, Campaign

if TYPE_CHECKING:
    from orchestrator.config.lab import LabConfig

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
        tunings=3,
        warmup_runs=10,
        warmup_seconds=1.0,
        min_runs=662,
        min_seconds=10.0,
        max_seconds=120.0,
    ),
}
"""Counts of each level, as docs/models-yaml.md lists them. Chosen by the sample floors of tails, which hold
in every process: `quick` is certain of p50 alone, `standard` has enough for p95 (130), `publish` for p99
(662); a test compares the last with the measuring core's floor. More processes give a narrower interval of
p50 and take proportionally longer. `publish` has several tunings, which its interval is then over: three are
the fewest that give one."""

_SLACK_PER_PROCESS_S: Final = 60.0
"""Seconds that one process may need besides its runs: start, load, cold compilation, outputs. Chosen; a
smaller value would end a slow compilation in a timeout where the level has many processes."""

_LONGEST_WARMUP_RATIO: Final = 3
"""How many times its planned seconds warm-up may last: the measuring loop stops it there, whether or not its
runs are done (`runtime.tools.benchmark`)."""


_SHORTEST_WARMUP_CAP_S: Final = 1.0
"""Seconds that warm-up may last at least, however short it is planned, for the same reason."""

_SHORTEST_RUN_S: Final = 1e-6
"""Seconds of the shortest run. Chosen below what a call from Python takes; smaller would count runs that
cannot be.
"""

_FACTS_BYTES: Final = 65_536
"""Bytes of one process's samples besides the times, at most: its facts and flags have a few KiB. Chosen."""


def soft_limit_s(plan: MeasurePlan) -> float:
    """How long one attempt may take where the file does not say: enough for every process at its cap."""
    process = _SLACK_PER_PROCESS_S + _LONGEST_WARMUP_RATIO * plan.warmup_seconds + plan.max_seconds
    # The cold processes of the tunings, too, which time nothing but compile everything.
    later = sum(_SLACK_PER_PROCESS_S + seconds for seconds in plan.passes_s)
    return max(DEFAULT_SOFT_LIMIT_S, (plan.tunings + plan.processes) * process) + later


def samples_bytes(plan: MeasurePlan) -> int:
    """The most bytes that the raw samples of one attempt can have: one JSON list, a number for every run."""
    warmup_s = max(_LONGEST_WARMUP_RATIO * plan.warmup_seconds, _SHORTEST_WARMUP_CAP_S)
    runs = _numbers_bytes(plan.max_runs, plan.max_seconds) + _numbers_bytes(plan.max_runs, warmup_s)
    runs += _offsets_bytes(plan.max_runs, plan.max_seconds)
    return plan.processes * (runs + _FACTS_BYTES) + plan.tunings * _FACTS_BYTES


def _numbers_bytes(most: int, seconds: float) -> int:
    """Bytes of at most `most` comma-separated times in ns that last `seconds` together.

    A time x has floor(log10(x)) + 1 digits and a comma; as log10 is concave, equal times need the most.
    """
    count = min(most, math.ceil(seconds / _SHORTEST_RUN_S))
    return math.ceil(count * (math.log10(seconds / count * 1e9) + 2))


def _offsets_bytes(most: int, seconds: float) -> int:
    """Bytes of the starts of at most `most` runs within that time, in ns, each with a comma."""
    count = min(most, math.ceil(seconds / _SHORTEST_RUN_S))
    return count * (math.ceil(math.log10(max(seconds, _SHORTEST_RUN_S) * 1e9)) + 2)


def require_samples_fit(campaign: Campaign, lab: LabConfig) -> None:
    """Refuse a campaign whose raw samples the farm's endpoint could refuse. Raises `UsageError`.

    A farm on one machine has no endpoint, and its samples no limit.
    """
    limit = lab.limits.samples_bytes
    if lab.address is None:
        return
    for model in campaign.models:
        needed = samples_bytes(model.plan)
        if needed > limit:
            raise UsageError(
                f"model {model.id}: its raw samples could have {size_text(needed)}: {model.plan.processes} "
                f"processes with up to {model.plan.max_runs} runs; the farm takes {size_text(limit)}: "
                "lower timed.max_runs, or raise FARM_SAMPLES_BYTES on the server"
            )


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

    Raises `ValueError` where a minimum exceeds its maximum, or the tunings the processes.
    """
    values = {"tunings": 1} | LEVELS[level].model_dump()
    for measure in measures:
        values |= {name: measure[name] for name in ("processes", "tunings") if name in measure}
        for (block, key), field in _FIELDS.items():
            if key in measure.get(block, {}):
                values[field] = measure[block][key]
        # What a pass lacks is reported at its place in the file.
        if "minutes" in measure.get("sustained", {}):
            values["sustained_s"] = 60 * measure["sustained"]["minutes"]
        if {"in_flight", "seconds"} <= measure.get("throughput", {}).keys():
            values["throughput"] = ThroughputPlan(**measure["throughput"])
    asked = any("tunings" in measure for measure in measures)
    if asked and values["tunings"] > values["processes"]:
        raise ValueError(
            f"tunings {values['tunings']} exceeds processes {values['processes']} (level {level}); every "
            "tuning needs a process"
        )
    values["tunings"] = min(values["tunings"], values["processes"])
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
