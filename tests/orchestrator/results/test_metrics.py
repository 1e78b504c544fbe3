"""One entry in the registry is all that a new figure costs: every table, file and page finds it there."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace

import pytest

from agent.wire.labelled import LabelledScore
from agent.wire.measurement import Latency
from agent.wire.messages import Reason, ReasonCode
from orchestrator.cli.outcome import comparison_table
from orchestrator.cli.show import cell_text
from orchestrator.results import metrics
from orchestrator.results.export import (
    FIRST_COLUMNS,
    cell_document,
    csv_columns,
    result_json,
    results_csv,
    results_document,
)
from orchestrator.results.metric import Metric
from orchestrator.results.metrics import METRICS
from orchestrator.results.metrics_table import metrics_table
from orchestrator.site import links
from orchestrator.site.build import build_site
from runtime.common.statistics import MIN_UNITS
from runtime.judge import agreement, bounds, rules
from runtime.measure.samples.summary import FLOORS
from tests.needs import REPOSITORY
from tests.orchestrator.site.reading import read_page
from tests.orchestrator.site.records import demo_farm

ENERGY = Metric(
    key="energy_mj.mean",
    label="energy",
    unit="mJ",
    better="lower",
    section="resources",
    help="Energy of one invoke at the socket of the host.",
    read=lambda cell: None if cell.measurement is None else cell.measurement.samples / 8,
    text=lambda value: f"{value:.3f}",
    unit_in_heading=True,
    chip=True,
    table=lambda m: f"energy {m.samples / 8:.3f} mJ",
)
FARM = demo_farm()
CAMPAIGN = FARM.campaign_list[1]
CELLS = FARM.cell_lists[CAMPAIGN.campaign_id]
CELL = next(cell for cell in CELLS if cell.measurement is not None)


@pytest.fixture
def one_more(monkeypatch) -> str:
    """One entry more in the registry; returns how its value is written."""
    monkeypatch.setattr(metrics, "METRICS", (*METRICS, ENERGY))
    return f"{CELL.measurement.samples / 8:.3f}"


def test_a_registered_metric_is_on_the_terminal(one_more, capsys):
    comparison_table(CELLS, "litert")
    assert f"energy {one_more} mJ" in " ".join(capsys.readouterr().out.split())
    assert f"energy            {one_more} mJ" in cell_text(CELL, [])


def test_a_registered_metric_is_in_the_data_files(one_more):
    value = CELL.measurement.samples / 8
    (found, *_) = [entry for entry in json.loads(results_document(CELLS)) if entry["model"] == CELL.model]
    assert found["energy_mj"] == {"mean": value}
    assert json.loads(cell_document(CELL, []))["result"]["energy_mj"] == {"mean": value}
    columns = csv_columns()
    assert columns[: len(FIRST_COLUMNS)] == FIRST_COLUMNS, "the columns before it stay where they are"
    assert "energy_mj.mean" in columns
    (row, *_) = csv.DictReader(io.StringIO(results_csv([CELL])))
    assert float(row["energy_mj.mean"]) == value
    (bare,) = [cell for cell in CELLS if cell.measurement is None]
    assert result_json(bare)["energy_mj"] is None


def test_a_registered_metric_is_on_every_page(one_more, tmp_path):
    site = build_site(FARM, tmp_path / "site").parent
    pages = {
        "campaign": links.campaign_page(CAMPAIGN.campaign_id),
        "model": links.model_page(CAMPAIGN.campaign_id, CELL.model),
        "cell": links.cell_page(CELL.cell_id),
    }
    for name, path in pages.items():
        assert one_more in read_page(site / path).text, name
    for path in (pages["model"], pages["cell"]):
        assert "energy, mJ" in read_page(site / path).text
    method = read_page(site / links.METHOD).text
    assert "energy, mJ" in method
    assert "Energy of one invoke at the socket of the host. Lower is better." in method


def test_the_table_of_the_docs_is_what_the_generator_writes(tmp_path):
    table, fresh = REPOSITORY / "docs" / "metrics.md", tmp_path / "metrics.md"
    command = [sys.executable, "-m", "orchestrator.results.metrics_table"]
    subprocess.run([*command, str(fresh)], check=True, cwd=REPOSITORY)
    stale = f"stale: python -m orchestrator.results.metrics_table {table.relative_to(REPOSITORY)}"
    assert table.read_text(encoding="utf-8") == fresh.read_text(encoding="utf-8"), stale


def test_the_table_of_the_docs_has_a_registered_metric(one_more):
    assert "| energy | `energy_mj.mean` | mJ | lower | Energy of one invoke" in metrics_table()


def test_caches_that_hold_nothing_save_nothing_of_an_init():
    saved = next(metric for metric in METRICS if metric.key == "caches.init_saved_ms")
    times = CELL.measurement.latency_ms.model_copy(update={"init": 9.0, "init_warm": 2.0})

    def cell(cache_bytes):
        update = {"latency_ms": times, "cache_bytes": cache_bytes}
        return replace(CELL, measurement=CELL.measurement.model_copy(update=update))

    assert saved.read(cell(5)) == saved.read(cell(None)) == 7.0
    assert saved.full_text(cell(0)) == "none: left nothing in program caches"


def test_every_figure_that_is_measured_is_registered():
    keys = {metric.key for metric in METRICS}
    assert len(keys) == len(METRICS)
    assert {f"latency_ms.{name}" for name in Latency.model_fields if name != "missing"} <= keys


def test_the_columns_of_the_first_release_come_first_and_each_has_its_value():
    score = LabelledScore(metric="top1", samples=100, right=72, share=0.72, at_least=0.7, verdict="pass")
    measured = next(c.measurement for c in CELLS if c.measurement and c.measurement.delegation)
    full = replace(
        CELL,
        reason=Reason(code=ReasonCode.COMPLETED, text="in full"),
        measurement=measured.model_copy(update={"labelled": score}),
    )
    (row,) = csv.DictReader(io.StringIO(results_csv([full])))
    assert tuple(row)[: len(FIRST_COLUMNS)] == FIRST_COLUMNS
    empty = [
        column
        for column, value in row.items()
        if value == "" and not column.startswith(("grade_reason", "quality.", "imported."))
    ]
    assert empty[-2:] == ["reused_from", "again"]
    assert not set(empty) & set(FIRST_COLUMNS)
    new = ("_ci95", "peak_cold", "accuracy.margin")
    passes = ("sustained.", "steps.", "throughput.", "pipeline.")
    optional = (
        "ratio.",
        "energy.",
        "cpu_ms",
        "variation.",
        "device_ms.",
        "transfer.",
        "caches.bytes",
        *passes,
    )
    others = [column for column in empty[:-2] if not column.startswith(optional)]
    assert all(column.endswith(new) or "_ci95." in column for column in others), empty


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.key)
def test_a_metric_is_explained_in_whole_sentences(metric):
    assert metric.help[0].isupper()
    assert metric.help.endswith(".")
    assert "|" not in metric.help, "it stands in a Markdown table"
    assert metric.label
    assert metric.unit


def test_the_docs_state_the_sample_floors_in_force():
    text = " ".join((REPOSITORY / "docs" / "measuring.md").read_text(encoding="utf-8").split())
    assert ", ".join(f"{name} **{floor}**" for name, floor in FLOORS.items()) in text
    assert f"Below {MIN_UNITS} processes the interval is null" in text


def test_the_docs_state_the_tolerances_in_force():
    text = (REPOSITORY / "docs" / "measuring.md").read_text(encoding="utf-8")
    fp32, fp16, floor = (
        f"{value:.0e}".replace("e-0", "e-")
        for value in (rules.FP32_TOLERANCE, rules.REDUCED_TOLERANCE, rules.ABSOLUTE_FLOOR)
    )
    assert f"tol = {fp32}." in text
    assert f"in {', '.join(rules.REDUCED)} without" in text
    assert f"‖e‖ ≤ {fp16}·‖r‖ + {floor}·√n" in text
    assert f"| {bounds.FACTORS['rms']} | tol·‖r‖/√n + {floor} | q/2" in text
    assert f"{bounds.FACTORS['mean']:g}, and {bounds.STANDARD_ERRORS:g} standard errors" in text
    assert f"differ by more than {bounds.MOST_AMPLIFIED:.0%}".replace("%", " %") in text
    assert f"1/{agreement.FLOAT_QUANTA} of the reference's range" in text
    cosine, relative = bounds.MIN_CENTRED_COSINE, bounds.MAX_RELATIVE
    assert f"centred cosine of the dequantised outputs ≥ {cosine} and ‖y − r‖ ≤ {relative}·‖r‖" in text  # noqa: RUF001  # minus sign
