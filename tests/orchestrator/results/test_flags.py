"""What disturbed a measurement is seen wherever its figures are."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from orchestrator.results.comparison import cell_lines
from orchestrator.results.export import PROVENANCE_COLUMNS, results_csv, results_document
from orchestrator.results.flags import Flag, flags_of
from orchestrator.results.records import CellRecord
from tests.orchestrator.cli.records import cell

DISTURBED = (
    "process 1: preempted: 35 involuntary switches/s",
    "process 2: preempted: 41 involuntary switches/s",
    "process 2: drift: the last third is +4.1% against the first",
    "process 3: preempted: 22 involuntary switches/s",
)


def disturbed(*warnings: str, processes: str = "3", **more: object) -> CellRecord:
    good = cell("net", "cpu", **more)
    assert good.measurement is not None
    settings = {**good.measurement.settings, "processes": processes}
    return replace(
        good, measurement=good.measurement.model_copy(update={"warnings": warnings, "settings": settings})
    )


def test_flags_are_counted_by_kind() -> None:
    measured = disturbed(*DISTURBED, "the driver said: clocks are locked").measurement
    assert measured is not None
    assert flags_of(measured) == (Flag("preempted", 3, 3), Flag("drift", 1, 3), Flag("warning", 1, 3))


def test_the_table_has_a_line_of_flags_where_there_are_any() -> None:
    assert len(cell_lines(disturbed(), None)) == 2
    assert cell_lines(disturbed(*DISTURBED), None)[-1] == "⚑ major: preempted 3/3, drift 1/3"


def test_json_and_csv_have_the_flags_and_where_the_result_comes_from() -> None:
    one = disturbed(*DISTURBED)
    (found,) = json.loads(results_document([one]))
    assert found["flags"] == list(DISTURBED)
    assert (found["cell_id"], found["campaign_id"]) == (one.cell_id, one.campaign_id)
    assert (found["model_sha256"], found["threads"]) == (one.model_sha256, 2)
    (row,) = csv.DictReader(io.StringIO(results_csv([one])))
    assert tuple(row)[-len(PROVENANCE_COLUMNS) :] == PROVENANCE_COLUMNS
    assert row["flags"] == "; ".join(DISTURBED)


@pytest.mark.parametrize(("interval", "sign"), [((9.9, 10.2), ""), ((0.0013, 89483.0), "≈ ")])
def test_a_very_wide_interval_does_not_look_like_any_other(interval: tuple[float, float], sign: str) -> None:
    first = cell_lines(disturbed(p50=10.0, ci95=interval), None)[0]
    assert first.startswith(f"{sign}10.0 ")
