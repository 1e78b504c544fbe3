"""The stages of an init and the level of an interval, on a cell's page and on the terminal."""

from __future__ import annotations

import pytest

from orchestrator.cli.show import cell_text
from orchestrator.site import links
from orchestrator.site.build import build_site
from tests.orchestrator.site.reading import read_page
from tests.orchestrator.site.records import (
    HOST,
    NIGHT,
    HandMadeFarm,
    campaign,
    cell,
    measurement,
    processes,
)

RAW = processes("raw", 3.0, samples=40)
CELLS = {
    kind: cell("today", "net", kind, HOST, measurement=measurement(RAW, kind, 4))
    for kind in ("gpu", "cpu", "litert")
}
WRONG = cell("today", "net", "wrong", HOST, measurement=measurement(RAW, "gpu", 4, "fail"))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Return the text of each cell's page."""
    record = campaign("today", NIGHT, ["net"], [*CELLS], None)
    farm = HandMadeFarm((record,), {record.campaign_id: tuple(CELLS.values())})
    site = build_site(farm, tmp_path_factory.mktemp("stages") / "site").parent
    return {kind: read_page(site / links.cell_page(one.cell_id)).text for kind, one in CELLS.items()}


def test_the_page_has_each_stage_cold_and_warm_and_how_many_there_were(text):
    shown = text["gpu"].partition("Init by stage, ms")[2].partition("Variation")[0]
    rows = " ".join(shown.split())
    assert "stagecoldwarm parse0.6000.500 partition2.402.30 compile71221.0" in rows
    assert "processes15" in rows


def test_a_stage_that_is_not_told_is_a_dash_with_the_reason(text):
    assert "litert told no such stage" in text["litert"]
    assert "litert does not tell what it holds on its device" in text["litert"]
    assert "told no such stage" not in text["gpu"]


def test_the_page_says_what_the_interval_is_over_and_where_to_repeat_more(text):
    shown = text["gpu"].partition("Variation")[2]
    assert "5 processes, given this tuning" in shown
    assert "6 blocks for an interval of 1 % to either side" in shown
    assert "0c41d29e5a7b=rows 9b07c41d29e5=16" in shown


def test_the_terminal_has_the_same_on_two_lines():
    lines = cell_text(CELLS["cpu"], []).splitlines()
    (cold, warm) = [line.split("  ")[-1].strip() for line in lines if line.startswith("init by stage")]
    assert cold == "cold, of 1: parse 0.500, partition 2.10, compile 3.30, other 1.20 ms"
    assert warm.startswith("warm, of 5: parse")
    assert any(line.strip() == "no tune, upload: cpu told no such stage" for line in lines)
    assert "init by stage" not in cell_text(WRONG, [])
