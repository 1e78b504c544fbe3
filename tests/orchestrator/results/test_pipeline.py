"""A pipeline in every form of a result, in a plan, in the file that repeats it, and as a budget."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from agent.wire.passes import Pipeline, PipelinePlan
from agent.wire.plan import MeasurePlan
from orchestrator.cli.show import cell_text
from orchestrator.farm.again.reproduction import measure_block
from orchestrator.manifest.budget import read_budget
from orchestrator.manifest.plans import plan, soft_limit_s
from orchestrator.policy.preview import expected_s
from orchestrator.results.budgets import judge_budgets
from orchestrator.results.export import result_json, results_csv
from orchestrator.results.metrics import named
from tests.needs import REPOSITORY
from tests.orchestrator.results.test_throughput import CELL

WHY = "cpu has no asynchronous runs"
SERIAL = Pipeline(
    preprocess="3 ms of a processor", serial_per_second=25.0, preprocess_ms=3.0, run_ms=37.0,
    missing={"per_second": WHY, "gain": WHY},
)  # fmt: skip
FOUND = SERIAL.model_copy(update={"per_second": 27.0, "gain": 1.08, "missing": {}})


def having(found: Pipeline | None):
    return replace(CELL, measurement=CELL.measurement.model_copy(update={"pipeline": found}))


def test_the_rates_are_in_every_form():
    cell = having(FOUND)
    told = result_json(cell)["pipeline"]
    assert told == FOUND.model_dump()
    example = (REPOSITORY / "docs" / "results-format.md").read_text(encoding="utf-8").split("```")[1][4:]
    assert set(told) == set(json.loads(example)[0]["pipeline"])
    assert "pipeline.per_second" in results_csv([cell]).splitlines()[0]
    line = "27 frames/s, 1.08 times 25 frames/s in series (3 ms of a processor: 3.00 + 37.0 ms)"
    assert line in " ".join(cell_text(cell, []).split())
    assert named("pipeline.gain").direction == "higher is better"


def test_one_without_asynchronous_runs_has_the_serial_rate_and_one_without_the_pass_nothing():
    lacking = " ".join(cell_text(having(SERIAL), []).split())
    assert "25 frames/s in series (3 ms of a processor: 3.00 + 37.0 ms)" in lacking
    assert f"overlapped: none: {WHY}" in lacking
    nothing = Pipeline(preprocess="resize 1280x720", missing={"per_second": "it takes no picture"})
    assert "none: it takes no picture" in cell_text(having(nothing), [])
    assert named("pipeline.per_second").full_text(having(None)) == "none: not asked for"
    assert result_json(having(None))["pipeline"] is None
    assert "frames/s" not in cell_text(having(None), [])


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"preprocess": "resize"}, PipelinePlan()),
        ({"cpu_ms": 3.0, "seconds": 600.0}, PipelinePlan(cpu_ms=3, seconds=600)),
    ],
)
def test_a_plan_allows_for_the_time_and_the_file_that_repeats_it_asks_the_same(asked, expected):
    made, without = plan("quick", {"pipeline": asked}), plan("quick")
    assert made.pipeline == expected
    assert soft_limit_s(made) >= soft_limit_s(without) + expected.seconds
    assert expected_s(made, None) >= expected_s(without, None) + expected.seconds
    assert "pipeline" not in without.model_dump_json(), "or every series would be cut"
    assert MeasurePlan.model_validate_json(made.model_dump_json()) == made
    assert measure_block(made)["pipeline"] == {"seconds": expected.seconds, **asked}


@pytest.mark.parametrize(
    ("budget", "found", "outcome", "said"),
    [
        ("fps>=27", FOUND, "met", "27 frames/s"),
        ("fps >= 30", FOUND, "exceeded", "27 frames/s"),
        ("fps>=1", SERIAL, "no_result", WHY),
        ("fps>=1", None, "no_result", "its campaign file asks for no `measure: {pipeline: …}`"),
    ],
)
def test_a_budget_of_frames_bounds_them_from_below(budget, found, outcome, said):
    (judged,) = judge_budgets([having(found)], [read_budget(budget)])
    assert (judged.outcome, judged.said) == (outcome, said)
