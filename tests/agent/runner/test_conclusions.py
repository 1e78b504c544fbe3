"""Figures that are not used: over a wrong baseline, scheduled otherwise, too short, of closed caches."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from agent.attempt.files import RunnerResult
from agent.runner.decide import _Blocks
from agent.runner.judge import verdict
from agent.runner.judge.accuracy import JudgedOutputs, ModelKind
from agent.runner.turns.block import _Block
from agent.wire.measurement import BlockFigure
from agent.wire.messages import ReasonCode, Status
from runtime.judge.rules import Arithmetic
from tests.contract.fake_agent import measurement


@pytest.mark.parametrize("status", list(Status))
def test_a_baseline_is_one_once_its_outputs_were_right(status):
    base = SimpleNamespace(result=SimpleNamespace(status=status), over=True)
    judged = _Blocks.judged_baseline(SimpleNamespace(baseline=base), SimpleNamespace())
    assert judged is (base if status is Status.DONE else None)


@pytest.mark.parametrize("changed", [None, "it was scheduled otherwise in the end: nice 0 → 5"])
def test_a_process_that_is_scheduled_otherwise_in_the_end_cannot_be(changed):
    part = SimpleNamespace(changed=changed, ran_stopped_s=0.0, times=[], arm=None, runs=1)
    found = _Block._impossible(SimpleNamespace(rounds=[], _clean=()), part)
    assert found == (() if changed is None else (changed,))


@pytest.mark.parametrize(
    ("runs", "told_ms", "honest"), [(1, 40, True), (1, 10, False), (9, 80, True), (9, 40, False)]
)
def test_invokes_that_are_not_timed_are_none_that_a_process_hides(runs, told_ms, honest):
    arm = SimpleNamespace(name="gpu")
    slices = [SimpleNamespace(slices={"gpu": SimpleNamespace(wall_s=0.1)}) for _ in range(7)]
    times = {n: SimpleNamespace(invoke_ns=[told_ms * 1e6 / runs] * runs) for n in range(7)}
    part = SimpleNamespace(changed=None, ran_stopped_s=0.0, times=times, arm=arm, runs=runs)
    assert (_Block._impossible(SimpleNamespace(rounds=slices, _clean=range(7)), part) == ()) is honest


@pytest.mark.parametrize(
    ("joules", "wall_s", "energy"),
    [
        ({0: 3.0, 1: 99.0, 2: 5.0}, 0.1, 40.0 * 0.002),  # of a disturbed round nothing counts
        ({0: 3.0, 1: 99.0}, 0.1, None),
        ({0: 3.0, 1: 99.0, 2: 5.0}, 0.02, None),
        ({}, 0.1, None),
    ],
)
def test_the_energy_of_a_call_is_the_power_of_the_turns_that_count(joules, wall_s, energy):
    rounds = [SimpleNamespace(slices={"gpu": SimpleNamespace(wall_s=wall_s)}) for _ in range(3)]
    times = {n: SimpleNamespace(invoke_ns=[2e6 if n != 1 else 9e9]) for n in range(3)}
    part = SimpleNamespace(joules=joules, times=times, arm=SimpleNamespace(name="gpu"))
    assert _Block._energy(SimpleNamespace(rounds=rounds), part, [0, 2]) == (
        None if energy is None else pytest.approx(energy)
    )


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_time_that_physics_forbids_is_struck_out(monkeypatch, share):
    found = measurement(None).model_copy(update={"cpu_ms": 1.0})
    shortest_ms = found.latency_ms.p50 / share
    facts = verdict._ModelFacts(ModelKind(Arithmetic.FLOAT, keeps_state=False), shortest_ms)
    monkeypatch.setattr(verdict, "_model_facts", lambda *_: facts)
    monkeypatch.setattr(verdict, "judged_outputs", lambda *_: JudgedOutputs(found.accuracy))
    monkeypatch.setattr(verdict, "_summed_up", lambda *_: found)
    result = verdict.concluded(SimpleNamespace(), [SimpleNamespace()], Path(), "", {})
    if share == 1.0:
        assert (result.status, result.reason, result.measurement) == (Status.DONE, None, found)
        return
    assert (result.status, result.reason.code) == (Status.FAILED, ReasonCode.IMPLAUSIBLE)
    struck = result.measurement
    assert (struck.latency_ms.p50, struck.latency_ms.mean, struck.cpu_ms) == (None, None, None)
    assert "before the work is done" in struck.latency_ms.missing["p50"]
    assert struck.accuracy == found.accuracy, "what it computed stays as evidence"


def test_a_tail_is_at_least_the_median_where_earlier_blocks_were_slower():
    found = measurement(None)
    tails = {"p90": 1.1, "p95": 1.2, "p99": 1.6, "p90_ci95": (1.0, 1.1), "p99_ci95": (1.5, 1.7)}
    found = found.model_copy(update={"latency_ms": found.latency_ms.model_copy(update=tails)})
    result = RunnerResult(status=Status.DONE, reason=None, measurement=found)
    slower = [BlockFigure(p50_ns=1.4e6, rounds=7)] * 4
    latency = verdict.over_blocks(result, slower).measurement.latency_ms
    assert latency.p50 == pytest.approx(1.4)
    assert (latency.p90, latency.p95, latency.p99) == (latency.p50, latency.p50, 1.6)
    assert (latency.p90_ci95, latency.p99_ci95) == ((1.0, latency.p50), (1.5, 1.7))
    assert verdict.over_blocks(result, slower[:0]) == result
