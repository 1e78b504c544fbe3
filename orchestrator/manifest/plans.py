"""Defines the levels: counts of blocks, rounds and runs of a cell; `measure:` overrides single ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from agent.wire.bounded import SHORTEST_RUN_S
from agent.wire.plan import MeasurePlan
from orchestrator.config.limits import size_text
from orchestrator.errors import UsageError
from orchestrator.manifest.campaign import DEFAULT_SOFT_LIMIT_S, Campaign
from orchestrator.manifest.measure_keys import asked_passes

if TYPE_CHECKING:
    from orchestrator.config.lab import LabConfig

LEVELS: dict[str, MeasurePlan] = {
    "quick": MeasurePlan(level="quick"),
    "standard": MeasurePlan(
        level="standard", min_blocks=6, max_blocks=16, target=0.03, warmup_runs=10, warmup_seconds=1.0
    ),
    "publish": MeasurePlan(
        level="publish",
        min_blocks=10,
        max_blocks=40,
        tunings=3,
        target=0.015,
        warmup_runs=10,
        warmup_seconds=1.0,
    ),
}
"""Counts of each level, as docs/models-yaml.md lists them. Chosen: `quick` begins with the fewest blocks that
give an interval, `standard` with the fewest of which the slowest is trimmed (`runtime.common.statistics`);
each goes on until its target is reached, at most so long that a cell takes minutes. `quick` warms up for a
fifth of a second at least: the runs that the cold process needed to be steady, and half as many again, are
most of it, and half a second of each of three processes was a quarter of a block. `publish` has several
tunings, which its interval is then over: three are the fewest that give one."""

_SLACK_PER_PROCESS_S: Final = 60.0
"""Seconds that one process may need besides its runs: start, load, cold compilation, outputs. Chosen; a
smaller value would end a slow compilation in a timeout where the level has many blocks."""

_SLOW_RUN_S: Final = 1.0
"""Seconds of the slowest run that the time limit allows for. Chosen above every model of the zoo; one that is
slower still needs `limits.job`."""

_LONGEST_WARMUP_RATIO: Final = 3
"""How many times its planned seconds warm-up may last: the measuring process ends it there, whether or not
its runs are done (`runtime.measure.benchmark`)."""


_SHORTEST_WARMUP_CAP_S: Final = 1.0
"""Seconds that warm-up may last at least, however short it is planned, for the same reason."""

_FACTS_BYTES: Final = 65_536
"""Bytes of one process's samples besides the times, at most: its facts and flags have a few KiB. Chosen."""

_TIME_BYTES: Final = 7
"""Bytes of the time of a run in ns with its comma, where there are as many runs as can be: below 1 ms, which
is twenty times as long as each of so many should take (`SHORTEST_RUN_S`)."""

_NUMBER_BYTES: Final = 20
"""Bytes of any number of 64 bits with its comma: when a run began, and the time of a slow one."""


def soft_limit_s(plan: MeasurePlan) -> float:
    """Return the seconds that one attempt may take if the file sets no limit: enough for the most blocks, of
    slow runs, as large as can be and with as many repeated.
    """
    slice_s = max(plan.slice_seconds, plan.slice_runs * _SLOW_RUN_S)
    timed_s = _with_repeated(plan.most_rounds) * slice_s
    process_s = _SLACK_PER_PROCESS_S + _LONGEST_WARMUP_RATIO * plan.warmup_seconds + timed_s
    # The cold processes of the tunings, too, which time nothing but compile everything.
    later_s = sum(_SLACK_PER_PROCESS_S + seconds for seconds in plan.passes_s)
    return max(DEFAULT_SOFT_LIMIT_S, (plan.tunings + _most_blocks(plan)) * process_s) + later_s


def samples_bytes(plan: MeasurePlan) -> int:
    """Return the most bytes of the raw samples of one attempt: one JSON list, two numbers a run."""
    # A block of more rounds than planned has fewer runs in each, down to the least that a slice has.
    runs = max(rounds * plan.most_slice_runs(rounds) for rounds in (plan.rounds, plan.most_rounds))
    timed_bytes = _with_repeated(runs) * (_TIME_BYTES + _NUMBER_BYTES)
    timed_bytes += _with_repeated(plan.most_rounds) * plan.slice_runs * _NUMBER_BYTES
    warmup_s = max(_LONGEST_WARMUP_RATIO * plan.warmup_seconds, _SHORTEST_WARMUP_CAP_S)
    warmup_bytes = math.ceil(warmup_s / SHORTEST_RUN_S) * _TIME_BYTES + plan.warmup_runs * _NUMBER_BYTES
    process = timed_bytes + warmup_bytes + _FACTS_BYTES
    return _most_blocks(plan) * process + plan.tunings * _FACTS_BYTES


def _with_repeated(rounds: int) -> int:
    """At most half of the rounds of a block are repeated: where more are disturbed, all of them count."""
    return rounds + rounds // 2


def _most_blocks(plan: MeasurePlan) -> int:
    return plan.max_blocks + plan.most_repeated


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
                f"model {model.id}: its raw samples could have {size_text(needed)}: up to "
                f"{model.plan.max_blocks} blocks of {model.plan.rounds} rounds; the farm takes "
                f"{size_text(limit)}: lower slice.seconds or blocks.max, or raise "
                "FARM_SAMPLES_BYTES on the server"
            )


_AS_THEY_ARE = ("target", "rounds", "tunings", "halving")

_FIELDS = {
    ("blocks", "min"): "min_blocks",
    ("blocks", "max"): "max_blocks",
    ("warmup", "runs"): "warmup_runs",
    ("warmup", "min_seconds"): "warmup_seconds",
    ("slice", "min_runs"): "slice_runs",
    ("slice", "seconds"): "slice_seconds",
}


def plan(level: str, *measures: dict[str, Any]) -> MeasurePlan:
    """Return the level's counts, overridden by each `measure:` block in turn.

    Raises `ValueError` where the least blocks exceed the most, or the tunings the least blocks.
    """
    values = {"tunings": 1} | LEVELS[level].model_dump()
    for measure in measures:
        values |= {name: measure[name] for name in _AS_THEY_ARE if name in measure}
        values |= asked_passes(measure)
        values["rounds_fixed"] = values.get("rounds_fixed", False) or "rounds" in measure
        for (block, key), field in _FIELDS.items():
            if key in measure.get(block, {}):
                values[field] = measure[block][key]
    least, most = values["min_blocks"], values["max_blocks"]
    if least > most:
        raise ValueError(
            f"blocks.min {least} exceeds blocks.max {most} (level {level}); set blocks.max too, or write "
            f"`blocks: {least}`"
        )
    asked = any("tunings" in measure for measure in measures)
    if asked and values["tunings"] > least:
        raise ValueError(
            f"tunings {values['tunings']} exceeds blocks.min {least} (level {level}); every tuning needs a "
            "block"
        )
    # A level's own number gives way to few blocks; one that was asked for has been refused above.
    values["tunings"] = min(values["tunings"], least)
    try:
        return MeasurePlan.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{first['loc'][0]}: {first['msg']}") from error
