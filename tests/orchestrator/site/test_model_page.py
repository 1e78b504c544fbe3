"""A model's page: what the file is, and where else the same file was measured."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.results.records import ManifestRecord, ModelOrigin
from orchestrator.site import links
from orchestrator.site.build import build_site
from runtime.model.facts import model_facts
from runtime.model.reader import read_model
from tests.orchestrator.cli.models import unary_model
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

NET = "net"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """`yesterday` measured the file of `today` under another name; `reused` shows that result again."""
    raw = processes("raw", 3.0, samples=40)
    measured = measurement(raw, "cpu", 4)
    today = cell("today", NET, "cpu", HOST, measurement=measured)
    older = replace(
        cell("yesterday", "old_name", "cpu", HOST, measurement=measured, level="standard"),
        model_sha256=today.model_sha256,
    )
    again = replace(cell("reused", NET, "cpu", HOST, measurement=measured), reused_from=older.cell_id)
    cells = {"today": (today,), "yesterday": (older,), "reused": (again,)}
    records = [
        campaign(name, NIGHT - timedelta(days=age), [found[0].model], ["cpu"], None)
        for age, (name, found) in enumerate(cells.items())
    ]
    content = unary_model()
    farm = HandMadeFarm(
        tuple(records),
        {record.campaign_id: cells[record.name] for record in records},
        {},
        {today.model_sha256: model_facts(read_model(content), len(content))},
    )
    return build_site(farm, tmp_path_factory.mktemp("models") / "site").parent


def _model_page(site, name: str, model: str):
    return read_page(site / links.model_page(sha(name)[:10], model))


def test_other_measurements_of_the_file_are_a_click_away(site):
    history = links.history_page(NET)
    assert f"../{history}" in _model_page(site, "today", NET).values("href")
    page = read_page(site / history)
    assert "The same file was measured as old_name." in page.text
    assert f"../{links.history_page('old_name')}" in page.values("href")


def test_where_a_model_comes_from_stands_on_its_page(tmp_path):
    record = campaign("today", NIGHT, [NET], ["cpu"], None)
    origins = {NET: ModelOrigin("zoo:net", "Apache-2.0")}
    farm = HandMadeFarm(
        (record,),
        {record.campaign_id: (cell("today", NET, "cpu", HOST, "queued"),)},
        manifests={
            record.campaign_id: ManifestRecord(record.campaign_id, "today", "models.yaml", "", {}, origins)
        },
    )
    text = _model_page(build_site(farm, tmp_path / "site").parent, "today", NET).text
    assert "sourcezoo:net" in text
    assert "licenceApache-2.0" in text


def test_what_the_file_is_stands_on_its_page_where_the_farm_has_it(site, tmp_path):
    text = _model_page(site, "today", NET).text
    assert "The file kindfloat32" in text
    assert "operators1: 1 RELU" in text
    assert "inputsinput: float32 [1, 4096]" in text
    lost = HandMadeFarm(
        (campaign("today", NIGHT, [NET], ["cpu"], None),),
        {sha("today")[:10]: (cell("today", NET, "cpu", HOST, "queued"),)},
    )
    without = build_site(lost, tmp_path / "site").parent
    assert "The file kind" not in _model_page(without, "today", NET).text
