"""Farms that are small, half done or contradict themselves: the site builds, is whole, and says so."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from orchestrator.site import links
from orchestrator.site.build import build_site
from orchestrator.site.check import faults_of
from tests.orchestrator.site.reading import read_page
from tests.orchestrator.site.records import (
    HOST,
    NIGHT,
    HandMadeFarm,
    campaign,
    cell,
    measurement,
    processes,
    sha,
)

RAW = processes("odd", 3.0, samples=40)
CELL = replace(
    cell("first", "net", "litert", HOST, measurement=measurement(RAW, "litert", 42)), cell_id="cell-one"
)
FIRST = campaign("first", NIGHT, ("net",), ("litert",), None)


def test_a_farm_of_one_cell_has_every_page(tmp_path):
    index = build_site(
        HandMadeFarm((FIRST,), {FIRST.campaign_id: (CELL,)}, {CELL.cell_id: RAW}), tmp_path / "site"
    )
    assert list(faults_of(index.parent)) == []
    text = read_page(index).text
    assert "1 line, one for each model and level" in text
    assert "1 of 1 combinations" in text


def test_a_campaign_half_done_on_a_renamed_device_with_another_file_of_the_same_name_loses_nothing(tmp_path):
    """Also pruned: no raw samples are kept of either."""
    renamed = "bench-02/cpu"
    second = replace(
        campaign("second", NIGHT + timedelta(days=1), ("net", "later"), ("litert",), None),
        campaign_id="second",
    )
    again = replace(
        CELL, cell_id="cell-two", campaign_id="second", model_sha256=sha("other bytes"), device=renamed,
        finished_at=NIGHT + timedelta(days=1),
    )  # fmt: skip
    waiting = replace(
        cell("second", "later", "litert", renamed, "queued"), cell_id="cell-three", campaign_id="second"
    )
    farm = HandMadeFarm((FIRST, second), {FIRST.campaign_id: (CELL,), "second": (again, waiting)})
    site = build_site(farm, tmp_path / "site").parent
    assert list(faults_of(site)) == []
    history = read_page(site / links.history_page("net"))
    assert "Files of different content were measured under this name." in history.text
    assert {f"../{links.cell_page(one)}" for one in ("cell-one", "cell-two")} <= {*history.values("href")}
    for device in (HOST, renamed):
        assert (site / links.device_page(device)).is_file(), "what was measured under the old name stays"
    assert "1 cell waited or ran when this page was built" in read_page(site / links.INDEX).text
    assert "No raw samples are stored." in read_page(site / links.cell_page("cell-two")).text
