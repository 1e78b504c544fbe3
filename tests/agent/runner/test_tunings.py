"""Tunings through a real agent: each begins with caches of its own, and its processes share what it chose."""

from __future__ import annotations

import hashlib
import json
import math
import os

import pytest

from agent.attempt import runlog
from agent.runner.tunings import cold_index, is_cold, tuning_of
from agent.wire.measurement import ProcessSamples
from agent.wire.messages import Status, artifact_path
from runtime.common.statistics import estimate, geometric_mean
from runtime.measure.samples.summary import process_median
from tests.agent import tuning
from tests.agent.embedded_agent import BRIEF, job

PLAN = BRIEF.model_copy(update={"min_blocks": 4, "max_blocks": 4, "tunings": 3, "slice_runs": 2})


@pytest.fixture
def agent(tmp_path, monkeypatch, start_agent):
    """Start an agent whose runners find the delegate that draws its choices installed."""
    tuning.install(tmp_path / "site")
    path = [str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    return start_agent()


def measured(agent, spec):
    result = agent.run(spec)
    assert result.status is Status.DONE, (result.reason, result.log_tail)
    data = artifact_path(agent.store, result.measurement.samples_sha256).read_bytes()
    return result.measurement, [ProcessSamples.model_validate(entry) for entry in json.loads(data)]


def test_processes_take_turns_over_the_tunings_and_every_tuning_begins_with_a_process_of_its_own():
    assert [tuning_of(block, 3) for block in (1, 2, 3, 4)] == [0, 1, 2, 0]
    numbers = [cold_index(number, PLAN) for number in range(3)]
    assert numbers == [0, 6, 7], "four blocks are timed, and one of them perhaps once more"
    assert [is_cold(index, PLAN) for index in range(8)] == [True, *[False] * 5, True, True]


@pytest.mark.exhaustive
def test_the_interval_is_over_tunings_whose_outcome_is_stored_and_used_again(agent, stored):
    found, processes = measured(agent, job(stored, "lottery", plan=PLAN))
    assert [(p.cache, p.tuning) for p in processes] == [
        ("cold", 0), ("cold", 1), ("cold", 2), ("warm", 0), ("warm", 1), ("warm", 2), ("warm", 0),
    ]  # fmt: skip
    lives = runlog.intervals(runlog.read(agent.state / "runs.log"))
    assert [life.what for life in lives].count("measure") == 7
    medians = [process_median(p.kept_ns, p.kept_runs) / 1e6 for p in processes[3:]]
    units = [geometric_mean([medians[0], medians[3]]), medians[1], medians[2]]
    assert found.latency_ms.p50 == pytest.approx(geometric_mean(units))
    assert found.latency_ms.ci95 == pytest.approx(estimate([math.log(unit) for unit in units]).interval)
    assert (found.variation.level, found.variation.tunings, found.variation.processes) == ("tuning", 3, 4)
    assert not found.variation.given_tuning
    assert found.variation.tuning_s > 0
    assert "choices" not in found.settings
    chosen = [one.choices for one in found.tunings]
    assert len(set(chosen)) == 3, "each was drawn anew"
    assert [one.processes for one in found.tunings] == [2, 1, 1]
    assert [one.sha256 for one in found.tunings] == [hashlib.sha256(c.encode()).hexdigest() for c in chosen]

    again, processes = measured(
        agent, job(stored, "lottery", plan=PLAN, delegate_options={"choices": chosen[1]})
    )
    assert [one.sha256 for one in again.tunings] == [found.tunings[1].sha256]
    assert [p.cache for p in processes] == ["cold", *["warm"] * 4]
    assert (again.variation.level, again.variation.given_tuning) == ("process", True)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("delegate", "options"), [("lottery", {"draws": False}), ("litert", {})])
def test_what_chooses_nothing_by_timing_has_one_level_less(agent, stored, delegate, options):
    plan = PLAN.model_copy(update={"min_blocks": 3, "max_blocks": 3})
    found, processes = measured(agent, job(stored, delegate, plan=plan, delegate_options=options))
    assert [p.cache for p in processes] == ["cold", "warm", "warm", "warm"]
    assert (found.variation.level, found.variation.given_tuning) == ("process", False)
    assert found.tunings == ()
    assert found.latency_ms.ci95 is not None
