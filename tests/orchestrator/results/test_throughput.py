"""A throughput pass in every form of a result: terminal, JSON, CSV; and what it costs a plan."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

from agent.wire.passes import Throughput, ThroughputPlan
from agent.wire.plan import MeasurePlan
from orchestrator.cli.show import cell_text
from orchestrator.farm.again.reproduction import measure_block
from orchestrator.manifest.plans import plan, soft_limit_s
from orchestrator.policy.preview import expected_s
from orchestrator.results.export import result_json, results_csv
from orchestrator.results.metrics import METRICS, named
from tests.needs import REPOSITORY
from tests.orchestrator.site.records import demo_farm

FARM = demo_farm()
CELLS = FARM.cell_lists[FARM.campaign_list[1].campaign_id]
CELL = next(cell for cell in CELLS if cell.measurement is not None and cell.status == "done")
FOUND = Throughput(in_flight=4, seconds=10.5, runs=52_500, per_second=5000.0)


def having(found: Throughput | None):
    return replace(CELL, measurement=CELL.measurement.model_copy(update={"throughput": found}))


def test_the_rate_is_in_every_form():
    cell = having(FOUND)
    told = result_json(cell)["throughput"]
    assert told == {"in_flight": 4, "seconds": 10.5, "runs": 52_500, "per_second": 5000.0, "missing": {}}
    example = (REPOSITORY / "docs" / "results-format.md").read_text(encoding="utf-8").split("```")[1][4:]
    assert list(told) == list(json.loads(example)[0]["throughput"])
    (row,) = csv.DictReader(io.StringIO(results_csv([cell])))
    assert row["throughput.per_second"] == "5000.0"
    line = "5\u202f000 runs/s, 4 in flight (52\u202f500 runs in 10.5 s)"
    assert line in cell_text(cell, [])
    metric = named("throughput")
    assert (metric.key, metric.short_text(cell)) == ("throughput.per_second", "5\u202f000")
    assert metric.direction == "higher is better"


def test_a_cell_without_the_pass_says_nothing_of_it_and_one_without_a_rate_says_why():
    bare = having(None)
    assert result_json(bare)["throughput"] is None
    assert "runs/s" not in cell_text(bare, [])
    assert named("throughput").full_text(bare) == "none: not asked for"
    why = "litert has no asynchronous runs; in_flight: 1 measures runs one after another"
    lacking = having(Throughput(in_flight=4, missing={"per_second": why}))
    told = result_json(lacking)["throughput"]
    assert (told["in_flight"], told["per_second"], told["missing"]) == (4, None, {"per_second": why})
    assert f"none: {why}" in cell_text(lacking, [])
    assert named("throughput").full_text(lacking) == f"none: {why}"


def test_a_wrong_output_voids_the_rate():
    wrong = having(FOUND)
    accuracy = wrong.measurement.accuracy.model_copy(update={"verdict": "fail"})
    wrong = replace(wrong, measurement=wrong.measurement.model_copy(update={"accuracy": accuracy}))
    keys = [metric for metric in METRICS if metric.key.startswith("throughput.")]
    assert {metric.exported(wrong) for metric in keys} == {None}
    assert result_json(wrong)["throughput"] is None
    assert "runs/s" not in cell_text(wrong, [])


def test_a_plan_allows_for_the_time_and_one_without_is_what_it_was():
    asked = plan("quick", {"throughput": {"in_flight": 4, "seconds": 600}})
    assert asked.throughput == ThroughputPlan(in_flight=4, seconds=600)
    without = plan("quick")
    assert soft_limit_s(asked) >= soft_limit_s(without) + 600
    assert expected_s(asked, None) >= expected_s(without, None) + 600
    both = plan("quick", {"throughput": {"in_flight": 4, "seconds": 600}, "sustained": {"minutes": 10}})
    assert soft_limit_s(both) >= soft_limit_s(asked) + 600
    assert "throughput" not in without.model_dump_json(), "or every series would be cut"
    assert MeasurePlan.model_validate_json(asked.model_dump_json()) == asked
    assert measure_block(asked)["throughput"] == {"in_flight": 4, "seconds": 600}
    assert "throughput" not in measure_block(without)
