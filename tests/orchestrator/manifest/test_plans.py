"""Plans of measuring: the levels, how often tuning is done again, the time and the bytes that they take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.wire.bounded import MAX_BLOCKS, MOST_DERIVED_ROUNDS, SHORTEST_RUN_S
from agent.wire.measurement import ProcessSamples
from agent.wire.plan import MeasurePlan
from orchestrator.config.limits import StoreLimits
from orchestrator.manifest.plans import LEVELS, samples_bytes, soft_limit_s
from orchestrator.manifest.problems import ManifestError
from runtime.common.statistics import MIN_UNITS, ROBUST_UNITS
from tests.orchestrator.manifest.manifests import DOCUMENT, MINIMAL, load


@pytest.mark.parametrize("level", LEVELS)
def test_the_documented_levels_are_those_of_the_code(level: str) -> None:
    plan = LEVELS[level]
    warmup = f"at least {plan.warmup_runs} runs and {plan.warmup_seconds:g} s"
    blocks = f"{plan.min_blocks} to {plan.max_blocks}"
    assert f"| `{level}` | {blocks} | {100 * plan.target:g} % | {plan.tunings} | {warmup} |" in DOCUMENT
    assert (plan.rounds, plan.slice_runs, plan.slice_seconds) == (7, 5, 0.1), (
        "as the text says of every level"
    )


def test_tunings_are_at_most_the_least_blocks_and_follow_the_level(tmp_path: Path) -> None:
    def plan_of(measure: str, level: str = "publish") -> MeasurePlan:
        text = MINIMAL.replace("models:", f"level: {level}\ndefaults: {{measure: {measure}}}\nmodels:")
        return load(tmp_path, text).models[0].plan

    assert plan_of("{blocks: 12}").tunings == LEVELS["publish"].tunings == 3
    assert plan_of("{blocks: {min: 2, max: 12}}").tunings == 2
    assert plan_of("{blocks: 4, tunings: 4}", "quick").tunings == 4
    assert "tunings" not in plan_of("{blocks: 4}", "quick").model_dump(), "the series stays the same"
    with pytest.raises(ManifestError, match=r"tunings 4 exceeds blocks.min 3"):
        plan_of("{blocks: {min: 3, max: 9}, tunings: 4}")


def test_halving_needs_a_baseline_with_which_all_are_measured(tmp_path: Path) -> None:
    text = MINIMAL.replace("models:", "defaults: {measure: {halving: p50}}\nmodels:")
    with pytest.raises(ManifestError, match="halving needs a baseline"):
        load(tmp_path, text)
    plan = load(tmp_path, text + "baseline: {delegate: cpu}\n").models[0].plan
    assert plan.halving == "p50"
    assert "halving" not in LEVELS["quick"].model_dump(), "the series stays the same"


def test_a_target_in_per_cent_is_the_same_number(tmp_path: Path) -> None:
    for text, number in (("1.1%", "0.011"), ("0.1 %", "0.001"), ("100%", "1"), ("5%", "0.050")):
        percent, share = (
            load(tmp_path, f"{MINIMAL}defaults: {{measure: {{target: {word}}}}}\n") for word in (text, number)
        )
        assert percent.models[0].plan == share.models[0].plan
        assert percent.models[0].plan.target == float(number)


def test_a_level_begins_with_an_interval_and_the_thorough_ones_with_a_robust_one() -> None:
    assert LEVELS["quick"].min_blocks == MIN_UNITS
    assert LEVELS["standard"].min_blocks == ROBUST_UNITS
    assert max(plan.max_blocks for plan in LEVELS.values()) == MAX_BLOCKS
    assert LEVELS["quick"].target > LEVELS["standard"].target > LEVELS["publish"].target


@pytest.mark.parametrize("level", LEVELS)
def test_attempts_of_every_level_fit_into_their_time_limit(level):
    counts = LEVELS[level]
    # Blocks as large as can be, half of the rounds and a third of the blocks once more, of a model that takes
    # half a second, and a start of half a minute.
    process_s = 30 + 3 * counts.warmup_seconds + 1.5 * counts.most_rounds * counts.slice_runs * 0.5
    assert soft_limit_s(counts) >= (counts.tunings + 4 / 3 * counts.max_blocks) * process_s
    assert soft_limit_s(counts) >= 900


@pytest.mark.parametrize("level", LEVELS)
def test_a_farm_takes_the_samples_of_every_level(level):
    assert samples_bytes(LEVELS[level]) <= StoreLimits().samples_bytes


@given(
    blocks=st.integers(1, 3),
    rounds=st.integers(1, 7),
    fixed=st.booleans(),
    least=st.integers(1, 200),
    slice_s=st.floats(0, 0.1),
    warmup=st.floats(0, 2),
)
@settings(max_examples=10)
def test_the_samples_of_a_plan_have_at_most_the_bytes_that_are_planned_for(
    blocks: int, rounds: int, fixed: bool, least: int, slice_s: float, warmup: float
) -> None:
    plan = MeasurePlan(
        min_blocks=blocks,
        max_blocks=blocks,
        rounds=rounds,
        rounds_fixed=fixed,
        slice_runs=least,
        slice_seconds=slice_s,
        warmup_seconds=warmup,
    )
    warm = (int(SHORTEST_RUN_S * 1e9),) * int(max(3 * warmup, 1.0) / SHORTEST_RUN_S)
    texts = []
    for size, are_slow in ((r, s) for r in (rounds, plan.most_rounds) for s in (False, True)):
        most, slices = plan.most_slice_runs(size), size + size // 2
        times = (10**18,) * (least * are_slow) + (999_999,) * (most - least * are_slow)
        one = ProcessSamples(
            index=0, cache="cold", init_ns=10**12, first_ns=10**12, warmup_ns=warm,
            invoke_ns=times * slices, start_ns=(10**18,) * (most * slices),
            memory_peak_bytes=10**12, memory_before_bytes=10**12,
        )  # fmt: skip
        once_more = blocks + blocks // 3
        texts.append(len(json.dumps([one.model_dump(mode="json")] * once_more, separators=(",", ":"))))
        assert texts[-1] <= samples_bytes(plan)
    assert samples_bytes(plan) < 1.2 * max(texts) + (once_more + 1) * 70_000


def test_rounds_are_fixed_by_the_file_alone(tmp_path: Path) -> None:
    def plan_of(measure: str) -> MeasurePlan:
        return load(tmp_path, f"{MINIMAL}defaults: {{measure: {measure}}}\n").models[0].plan

    chosen, fixed = plan_of("{blocks: 4}"), plan_of("{rounds: 7}")
    assert (chosen.rounds_fixed, chosen.most_rounds) == (False, MOST_DERIVED_ROUNDS)
    assert (fixed.rounds_fixed, fixed.most_rounds) == (True, 7)
    assert "rounds_fixed" not in chosen.model_dump(), "the series stays the same"
    assert fixed.most_slice_runs(7) == chosen.most_slice_runs(5) == 2000
    assert chosen.most_slice_runs(14) == 1000, "as many samples of a block as planned"
