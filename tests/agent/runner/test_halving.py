"""Arms that go on where only the best is sought: cases of the pure rule, and arms of a real agent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace

import pytest

from agent.attempt.files import ProcessReport
from agent.runner import decide
from agent.runner.judge.blocks import halved_units
from agent.runner.judge.stopping import ArmState, Stopped, after_halving
from agent.wire.measurement import ProcessSamples, TimedSlice
from agent.wire.messages import Status
from agent.wire.plan import LabelledData, MeasurePlan
from tests.agent.embedded_agent import BRIEF
from tests.agent.runner.test_blocks import comparison, results_of

_PLAN = MeasurePlan(min_blocks=3, max_blocks=16, target=0.05, halving="p50")


def _arm(ms: float, blocks: int, spread: float = 0.0, **more: object) -> ArmState:
    """Build an arm of this time, whose blocks differ from it by a share to either side."""
    times = [math.log(ms) + spread * (-1) ** block for block in range(blocks)]
    return replace(ArmState(times, figures=times), **more)


def _stops(blocks: int, plan: MeasurePlan = _PLAN, **arms: ArmState) -> Mapping[str, Stopped | None]:
    return after_halving(plan, blocks, arms)


@pytest.mark.parametrize("blocks", [1, 3, 5, 7])
def test_nobody_leaves_between_the_rungs(blocks):
    arms = {f"a{ms}": _arm(ms, blocks, 0.1 * ms) for ms in range(1, 7)}
    assert set(_stops(blocks, **arms).values()) == {None}


def test_the_better_half_goes_on_after_two_blocks_and_two_of_them_after_four():
    arms = {name: _arm(ms, 2) for name, ms in (("a", 1.0), ("b", 1.1), ("c", 1.2), ("d", 1.3), ("e", 1.4))}
    first = _stops(2, **arms)
    assert first == {"a": None, "b": None, "c": None, "d": "behind", "e": "behind"}
    later = {name: replace(_arm(1.0, 4, 0.3), stopped=why) for name, why in first.items()}
    later["c"] = replace(later["c"], figures=_arm(0.8, 4, -0.3).figures)
    second = _stops(4, **later)
    assert [second[name] for name in "cde"] == [None, "behind", "behind"]
    assert sorted(map(str, (second["a"], second["b"]))) == ["None", "behind"]


def test_one_that_is_far_behind_leaves_although_it_is_in_the_better_half():
    arms = {name: _arm(ms, 2) for name, ms in zip("abcdef", (1.0, 9.0, 9.1, 11, 12, 13), strict=True)}
    assert [name for name, why in _stops(2, **arms).items() if why is None] == ["a", "b"]


@pytest.mark.parametrize("blocks", [1, 3, 4, 5])
def test_a_wrong_finalist_leaves_at_once_and_decides_nothing(blocks):
    arms = {"wrong": _arm(0.1, blocks, wrong=True), "a": _arm(1.0, blocks, 0.3)}
    assert _stops(blocks, **arms) == {"wrong": "behind", "a": None}


def test_those_without_a_figure_are_not_behind():
    arms = {name: replace(_arm(1.0, 2), figures=()) for name in "abcd"}
    assert set(_stops(2, **arms).values()) == {None}


def test_a_wrong_one_puts_nobody_behind():
    arms = {"wrong": _arm(0.1, 2, wrong=True), "a": _arm(1.0, 2), "b": _arm(1.1, 2)}
    assert _stops(2, **arms) == {"wrong": "behind", "a": None, "b": None}
    every = {name: replace(arm, wrong=True) for name, arm in arms.items()}
    assert set(_stops(2, **every).values()) == {"behind"}


@pytest.mark.parametrize(
    ("second", "spread", "why"),
    [(1.05, 0.002, "decided"), (1.005, 0.002, "decided"), (1.015, 0.02, None), (1.05, 0.06, None)],
    ids=["the better one is known", "alike", "open between the two", "too vague"],
)
def test_two_end_once_their_ratio_is_known(second, spread, why):
    # The second one's blocks vary the other way, so that the ratio varies.
    other = _arm(second, 8, -spread)
    assert _stops(8, a=_arm(1.0, 8, spread), b=other) == {"a": why, "b": why}


def test_what_varies_together_does_not_make_two_vague():
    assert _stops(4, a=_arm(1.0, 4, 0.3), b=_arm(1.1, 4, 0.3)) == {"a": "decided", "b": "decided"}
    taken = _arm(1.1, 4, 0.3, allowance=0.2)
    assert _stops(4, a=_arm(1.0, 4, 0.3), b=taken) == {"a": None, "b": None}


def test_what_is_left_ends_at_the_most_blocks_or_when_the_time_is_spent():
    arms = {"a": _arm(1.0, 16, 0.1), "b": _arm(1.0, 16, -0.1)}
    assert set(_stops(16, **arms).values()) == {"blocks"}
    assert set(after_halving(_PLAN, 5, arms, spent="time").values()) == {"time"}


def test_one_alone_is_measured_to_the_target():
    assert _stops(4, a=_arm(1.0, 4, 0.001)) == {"a": "target"}
    assert _stops(4, a=_arm(1.0, 4, 0.3)) == {"a": None}


def test_blocks_are_halved_by_the_rounds_that_count():
    slices = (TimedSlice(round=0, runs=2), TimedSlice(round=1, runs=2))
    samples = ProcessSamples(
        index=1, cache="warm", init_ns=1, first_ns=1, warmup_ns=(), invoke_ns=(10, 20, 30, 40),
        memory_peak_bytes=0, memory_before_bytes=0, slices=slices,
    )  # fmt: skip
    reports = [ProcessReport(samples=samples.without_kept()), ProcessReport(samples=samples)]
    assert halved_units(reports, "p99") == [math.log(40)]
    assert halved_units(reports, "p50") == [math.log(20)]


@pytest.mark.parametrize(
    ("verdict", "wrong"), [("fail", True), ("pass", False), ("inconclusive", False), (None, True)]
)
def test_an_arm_that_fails_on_labelled_data_is_wrong_as_soon_as_in_the_race(verdict, wrong):
    asked = LabelledData(sha256="0" * 64, size_bytes=1, at_least=0.5)
    score = None if verdict is None else SimpleNamespace(verdict=verdict)
    arm = SimpleNamespace(job=SimpleNamespace(plan=_PLAN.model_copy(update={"labelled": asked})), score=None)
    arm.score_labelled = lambda: setattr(arm, "score", score)
    arm.do = lambda step: step()
    assert decide._Blocks._is_inaccurate(SimpleNamespace(), arm) is wrong
    arm.job.plan = _PLAN
    assert not decide._Blocks._is_inaccurate(SimpleNamespace(), arm)


def test_arms_that_are_left_of_a_race_alternate_once_they_fit_in_memory(monkeypatch):
    together = []
    monkeypatch.setattr(decide, "fit_together", lambda arms: len(arms) < 3)
    monkeypatch.setattr(decide, "run_block", lambda *_, **named: together.append(named["together"]))
    arms = [SimpleNamespace(stopped=None) for _ in range(3)]
    lead = SimpleNamespace(job=SimpleNamespace(plan=_PLAN, seed=1))
    measured = SimpleNamespace(
        lead=lead, alive=arms, rounds=3, sensors=None, notes=[], runs=[], end_cancelled=lambda: None,
        _next_rounds=lambda: 3,
    )  # fmt: skip
    decide._Blocks._run_block(measured, 1, 1, None, together=False)
    arms[0].stopped = "behind"
    decide._Blocks._run_block(measured, 2, 2, None, together=False)
    assert together == [False, True]


@pytest.mark.slow
def test_arms_of_a_real_agent_leave_by_halves(start_agent, stored):
    agent = start_agent()
    arms = [{"delegate_kind": "litert", "delegate": f"litert-{n}", "delegate_options": {}} for n in range(3)]
    update = {"min_blocks": 1, "max_blocks": 3, "slice_runs": 2, "halving": "p50"}
    spec = comparison(stored, *arms).model_copy(update={"plan": BRIEF.model_copy(update=update)})
    agent.send(spec)
    found = results_of(agent, spec)
    assert {result.status for result in found.values()} == {Status.DONE}, found
    qualities = [result.measurement.quality for result in found.values()]
    assert sorted((one.stopped, one.blocks) for one in qualities) == [
        ("behind", 2), ("behind", 2), ("blocks", 3), ("blocks", 3),
    ]  # fmt: skip
