"""Sequences of steps in every form of a result, in a plan, and in the file that repeats it."""

from __future__ import annotations

from dataclasses import replace

from agent.wire.passes import Steps
from agent.wire.plan import MeasurePlan
from orchestrator.cli.show import cell_text
from orchestrator.farm.again.reproduction import measure_block
from orchestrator.manifest.plans import plan
from orchestrator.results.export import result_json, results_csv
from orchestrator.results.metrics import named
from tests.orchestrator.results.test_throughput import CELL


def having(found: Steps | None):
    return replace(CELL, measurement=CELL.measurement.model_copy(update={"steps": found}))


def test_the_times_are_in_every_form():
    cell = having(Steps(count=50, first=2.5, step=1.5))
    assert result_json(cell)["steps"] == {"count": 50, "first": 2.5, "step": 1.5, "missing": {}}
    assert "first output 2.50 ms, further steps 1.50 ms each (50 steps)" in cell_text(cell, [])
    assert "steps.step" in results_csv([cell]).splitlines()[0]
    assert named("steps.first").short_text(cell) == "2.50"
    why = "the model keeps no state: each of its runs is a first step"
    lacking = having(Steps(count=50, missing={"first": why, "step": why}))
    assert f"none: {why}" in cell_text(lacking, [])
    assert named("steps.first").full_text(having(None)) == "none: not asked for"


def test_a_plan_has_them_and_others_read_as_before():
    assert plan("quick", {"steps": 50}).steps == 50
    assert "steps" not in MeasurePlan().model_dump_json()
    assert measure_block(MeasurePlan(steps=50))["steps"] == 50
