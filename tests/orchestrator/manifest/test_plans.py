"""Plans of measuring: the levels, how often tuning is done again, the time and the bytes that they take."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.wire.measurement import ProcessSamples
from agent.wire.messages import MeasurePlan
from orchestrator.manifest import ManifestError
from orchestrator.manifest.plans import LEVELS, samples_bytes, soft_limit_s
from runtime.tools.samples import FLOORS
from tests.orchestrator.manifest.test_manifest import DOCUMENT, MINIMAL, load


@pytest.mark.parametrize("level", LEVELS)
def test_the_documented_levels_are_those_of_the_code(level: str) -> None:
    plan = LEVELS[level]
    warmup = f"at least {plan.warmup_runs} runs and {plan.warmup_seconds:g} s"
    timed = f"at least {plan.min_runs} runs and {plan.min_seconds:g} s, at most {plan.max_seconds:g} s"
    assert f"| `{level}` | {plan.processes} | {plan.tunings} | {warmup} | {timed} |" in DOCUMENT


def test_tunings_are_at_most_the_processes_and_follow_the_level(tmp_path: Path) -> None:
    def plan_of(measure: str, level: str = "publish") -> MeasurePlan:
        text = MINIMAL.replace("models:", f"level: {level}\ndefaults: {{measure: {measure}}}\nmodels:")
        return load(tmp_path, text).models[0].plan

    assert plan_of("{processes: 12}").tunings == LEVELS["publish"].tunings == 3
    assert plan_of("{processes: 2}").tunings == 2
    assert plan_of("{processes: 4, tunings: 4}", "quick").tunings == 4
    assert "tunings" not in plan_of("{processes: 4}", "quick").model_dump(), "the series stays the same"
    with pytest.raises(ManifestError, match="tunings 4 exceeds processes 3"):
        plan_of("{processes: 3, tunings: 4}")


def test_publish_has_a_p99_by_its_least_count_of_samples() -> None:
    assert LEVELS["publish"].min_runs == FLOORS["p99"]


@pytest.mark.parametrize("level", LEVELS)
def test_attempts_of_every_level_fit_into_their_time_limit(level):
    counts = LEVELS[level]
    assert soft_limit_s(counts) >= counts.processes * (3 * counts.warmup_seconds + counts.max_seconds)
    assert soft_limit_s(counts) >= 900


@given(
    processes=st.integers(1, 3),
    runs=st.integers(1, 2000),
    seconds=st.floats(0.001, 5),
    warmup=st.floats(0, 2),
)
@settings(max_examples=30)
def test_the_samples_of_a_plan_have_at_most_the_bytes_that_are_planned_for(
    processes: int, runs: int, seconds: float, warmup: float
) -> None:
    plan = MeasurePlan(
        processes=processes,
        min_runs=1,
        max_runs=runs,
        min_seconds=0,
        max_seconds=seconds,
        warmup_seconds=warmup,
    )
    equal = (int(seconds * 1e9) // runs,) * runs
    uneven = (10,) * (runs - 1) + (int(seconds * 1e9),)
    long = (int(max(3 * warmup, 1.0) * 1e9) // runs,) * runs
    for times in (equal, uneven):
        one = ProcessSamples(
            index=0, cache="cold", init_ns=10**12, first_ns=10**12, warmup_ns=long, invoke_ns=times,
            start_ns=tuple(accumulate(times)), memory_peak_bytes=10**12, memory_before_bytes=10**12,
        )  # fmt: skip
        text = json.dumps([one.model_dump(mode="json")] * processes, separators=(",", ":"))
        assert len(text) <= samples_bytes(plan)
    assert samples_bytes(plan) - len(text) < processes * (70_000 + 20 * runs) + 70_000
