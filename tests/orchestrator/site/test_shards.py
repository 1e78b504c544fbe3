"""Campaigns that are shown in brief: nothing of theirs is lost, and a site of both kinds is whole."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from shutil import copytree

import pytest

from orchestrator.site import archive, links
from orchestrator.site.build import build_site
from orchestrator.site.check import faults_of
from orchestrator.site.shards import read_shard
from tests.orchestrator.site.reading import read_page
from tests.orchestrator.site.records import NIGHT, HandMadeFarm, demo_farm

FARM = demo_farm()
OLDER, NEWEST = FARM.campaign_list
OLD_CELLS = FARM.cell_lists[OLDER.campaign_id]
ROOM = len(FARM.cell_lists[NEWEST.campaign_id])


@pytest.fixture(autouse=True)
def room_for_the_newest(monkeypatch):
    monkeypatch.setattr(archive, "IN_FULL", ROOM)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive, "IN_FULL", ROOM)
        return build_site(FARM, tmp_path_factory.mktemp("built") / "site").parent


@pytest.fixture
def site(built, tmp_path) -> Path:
    return copytree(built, tmp_path / "site")


def _rows(site: Path) -> dict:
    shards = sorted(site.glob(links.shard(f"{links.slug(OLDER.campaign_id)}-*")))
    return {name: row for path in shards for name, row in read_shard(path.read_text()).items()}


def _content(site: Path) -> dict[str, bytes]:
    return {str(p.relative_to(site)): p.read_bytes() for p in site.rglob("*") if p.is_file()}


@pytest.mark.slow
def test_an_older_campaign_has_no_pages_of_cells_and_a_newer_one_has(site):
    assert list(faults_of(site)) == []
    assert not any((site / links.cell_page(cell.cell_id)).exists() for cell in OLD_CELLS)
    assert all((site / links.cell_page(c.cell_id)).exists() for c in FARM.cell_lists[NEWEST.campaign_id])
    page = read_page(site / links.campaign_page(OLDER.campaign_id))
    assert f"All {len(OLD_CELLS)} cells" in page.text
    assert f"farm results {OLDER.campaign_id} --format csv" in page.text
    first = links.any_cell_page(links.shard_name(OLDER.campaign_id, 0), OLD_CELLS[0].cell_id)
    assert f"../{first}" in page.values("href"), "the first cells are there without a script"
    listed = json.loads((site / links.MANIFEST).read_text())["campaigns"]
    assert [one["csv"] for one in listed] == [links.campaign_data(NEWEST.campaign_id, "csv"), None]


def test_a_shard_has_all_that_was_measured(site):
    rows = _rows(site)
    assert list(rows) == [links.slug(cell.cell_id) for cell in OLD_CELLS]
    for cell in OLD_CELLS:
        row = rows[links.slug(cell.cell_id)]
        assert row["model"][0] == cell.model
        assert row["environment"] == cell.environment
        stored = None if cell.measurement is None else json.loads(cell.measurement.model_dump_json())
        assert row.get("measurement") == stored
    struck = next(row for row in rows.values() if (row["model"][0], row["delegate"]) == ("struck", "gpu"))
    assert struck["not compared"] == "wrong output"


def test_the_shards_of_a_campaign_stay_as_they_are_when_it_gets_older(tmp_path, monkeypatch, site):
    shards = {name: data for name, data in _content(site).items() if name.startswith("data/shards/")}
    monkeypatch.setattr(archive, "IN_FULL", 0)
    build_site(FARM, site)
    now = _content(site)
    assert shards.items() <= now.items(), "their addresses are permanent"
    assert now == _content(build_site(FARM, tmp_path / "whole").parent)
    assert list(faults_of(site)) == []


def test_a_link_to_a_cell_of_a_damaged_shard_is_a_fault(site):
    (shard,) = site.glob(links.shard(f"{links.slug(OLDER.campaign_id)}-*"))
    shard.write_text(shard.read_text().replace("A", "B", 5))
    assert any("leads to no cell of the site" in fault for fault in faults_of(site))


def test_a_cell_in_full_that_shows_the_result_of_one_in_brief_says_how_to_get_its_numbers(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(archive, "IN_FULL", len(OLD_CELLS))  # the newer campaign has more
    (reused,) = [cell for cell in OLD_CELLS if cell.reused_from]
    site = build_site(FARM, tmp_path / "site").parent
    page = read_page(site / links.cell_page(reused.cell_id))
    assert f"farm show {reused.reused_from} --all" in page.text
    assert list(faults_of(site)) == []


class Asked(HandMadeFarm):
    """A farm that notes which cells were asked for."""

    def compared(self, campaign_id: str, model: str | None = None):
        READ.append((campaign_id, model))
        return super().compared(campaign_id, model)


READ: list[tuple[str, str | None]] = []


def test_a_campaign_is_read_whole_as_soon_as_a_second_model_of_it_is_asked_for():
    READ.clear()
    asked = archive.Archive(Asked(**vars(FARM)))
    models = dict.fromkeys(cell.model for cell in OLD_CELLS)
    for model in models:
        expected = tuple(cell for cell in OLD_CELLS if cell.model == model)
        assert asked.of_model(OLDER.campaign_id, model) == expected
    assert len(models) > 2
    assert [(OLDER.campaign_id, next(iter(models))), (OLDER.campaign_id, None)] == READ


def test_one_more_result_reads_the_cells_of_its_campaign_and_its_model_alone(tmp_path, site, monkeypatch):
    monkeypatch.setattr(archive, "IN_FULL", ROOM + 1)
    old = OLD_CELLS[0]
    one = replace(old, cell_id="one-more", campaign_id="one-more", finished_at=NIGHT + timedelta(days=40))
    record = replace(NEWEST, campaign_id="one-more", name="another", submitted_at=NIGHT + timedelta(days=40))
    more = HandMadeFarm((*FARM.campaign_list, record), {**FARM.cell_lists, "one-more": (one,)}, FARM.raw)
    READ.clear()
    build_site(Asked(**vars(more)), site)
    others = {model for campaign, model in READ if campaign == OLDER.campaign_id}
    assert others == {old.model}
    assert ("one-more", None) in READ
    assert _content(site) == _content(build_site(more, tmp_path / "whole").parent)
    assert list(faults_of(site)) == []
    READ.clear()
    build_site(Asked(**vars(more)), site)
    assert READ == [], "nothing changed"
    (site / links.SUMMARIES).write_text("{}")
    build_site(Asked(**vars(more)), site)
    assert READ, "summaries that are not those of this site are not used"
    assert _content(site) == _content(tmp_path / "whole")
