"""A sustained pass in every form of a result: terminal, JSON, CSV, page; and what it costs a plan."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from agent.wire.passes import Sustained, SustainedSlice
from agent.wire.plan import MeasurePlan
from orchestrator.cli.show import cell_text
from orchestrator.farm.again.reproduction import measure_block
from orchestrator.manifest.plans import plan, soft_limit_s
from orchestrator.policy.preview import expected_s
from orchestrator.results.export import result_json, results_csv
from orchestrator.results.metrics import METRICS
from orchestrator.site.plots import sustained_plot
from tests.needs import REPOSITORY
from tests.orchestrator.site.records import demo_farm

FARM = demo_farm()
CELLS = FARM.cell_lists[FARM.campaign_list[1].campaign_id]
CELL = next(cell for cell in CELLS if cell.measurement is not None and cell.status == "done")
FOUND = Sustained(
    seconds=120.0,
    slices=tuple(
        SustainedSlice(from_s=30.0 * place, p50_ms=p50, runs=900, clock_mhz=mhz)
        for place, (p50, mhz) in enumerate([(2.0, 3600.0), (2.1, 3500.0), (2.5, 3000.0), (2.6, 2900.0)])
    ),
    end_over_start=1.3,
)


def having(found: Sustained | None):
    return replace(CELL, measurement=CELL.measurement.model_copy(update={"sustained": found}))


def test_the_end_over_the_start_is_in_every_form():
    cell = having(FOUND)
    told = result_json(cell)["sustained"]
    assert (told["seconds"], told["start_p50"], told["end_p50"], told["end_over_start"]) == (120, 2, 2.6, 1.3)
    assert [part["clock_mhz"] for part in told["slices"]] == [3600, 3500, 3000, 2900]
    example = (REPOSITORY / "docs" / "results-format.md").read_text(encoding="utf-8").split("```")[1][4:]
    documented = json.loads(example)[0]["sustained"]
    assert list(told) == list(documented)
    assert [set(part) for part in told["slices"]] == [set(part) for part in documented["slices"]]
    (row,) = csv.DictReader(io.StringIO(results_csv([cell])))
    assert row["sustained.end_over_start"] == "1.3"
    shown = cell_text(cell, [])
    assert "120 s without a pause: end over start 1.3 (2.60 over 2.00 ms)" in shown
    assert "3600, 3500, 3000, 2900 MHz" in shown
    plot = sustained_plot(cell)
    assert plot.panels[0].timed_path.count("M") == 4, "a dot for each part"
    heights = [
        float(dot.split(" ")[1].removesuffix("h0")) for dot in plot.panels[0].timed_path.split("M")[1:]
    ]
    assert heights == sorted(heights, reverse=True), "slower is higher on the page"


def test_a_cell_without_the_pass_says_nothing_of_it_and_one_that_failed_says_why():
    bare = having(None)
    assert result_json(bare)["sustained"] is None
    assert "sustained" not in cell_text(bare, [])
    assert sustained_plot(bare) is None
    failed = having(Sustained(seconds=600.0, note="the sustained process was killed by SIGSEGV"))
    assert result_json(failed)["sustained"]["note"] == "the sustained process was killed by SIGSEGV"
    assert "none: the sustained process was killed by SIGSEGV" in cell_text(failed, [])
    assert sustained_plot(failed) is None


def test_a_wrong_output_voids_the_pass():
    wrong = having(FOUND)
    accuracy = wrong.measurement.accuracy.model_copy(update={"verdict": "fail"})
    wrong = replace(wrong, measurement=wrong.measurement.model_copy(update={"accuracy": accuracy}))
    assert wrong.struck_out
    keys = [metric for metric in METRICS if metric.key.startswith("sustained.")]
    assert {metric.exported(wrong) for metric in keys} == {None}
    assert result_json(wrong)["sustained"] is None or result_json(wrong)["sustained"]["slices"] == []
    assert "without a pause" not in cell_text(wrong, [])
    assert sustained_plot(wrong) is None


def test_a_plan_allows_for_the_time_and_one_without_is_what_it_was():
    asked = plan("quick", {"sustained": {"minutes": 10}})
    assert asked.sustained_s == 600
    without = plan("quick")
    assert soft_limit_s(asked) >= soft_limit_s(without) + 600
    assert expected_s(asked, None) >= expected_s(without, None) + 600
    assert "sustained" not in without.model_dump_json(), "or every series would be cut"
    assert MeasurePlan.model_validate_json(asked.model_dump_json()) == asked
    assert measure_block(asked)["sustained"] == {"minutes": pytest.approx(10)}
    assert "sustained" not in measure_block(without)
