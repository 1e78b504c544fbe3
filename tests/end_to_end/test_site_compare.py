"""Any two campaigns set against each other in a real browser: the page says what `farm compare` says."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page

from orchestrator.results import format as text
from orchestrator.results.records import CellRecord
from orchestrator.results.regression import Change, by_names, compare_runs
from orchestrator.site import archive, links
from orchestrator.site.build import build_site
from orchestrator.site.cell_view import column_name
from tests.orchestrator.site.records import (
    HOST,
    MODELS,
    NIGHT,
    POCL,
    QUALITY,
    HandMadeFarm,
    campaign,
    cell,
    demo_farm,
    measurement,
    processes,
    ratio,
    reason,
)
from tests.sweeps import rarely

NAMES = tuple(MODELS)
ADDED = "added_later"


def _changed(one: CellRecord) -> CellRecord:
    """Return a cell of the demo as a second run of it has it: each model has a change of its own."""
    place, measured = NAMES.index(one.model), one.measurement
    if measured is not None and measured.ratio is not None:
        measured = measured.model_copy(update={"ratio": ratio(measured.ratio.median * (0.8 + 0.05 * place))})
    made = replace(one, campaign_id="demo-again", cell_id=f"again-{one.cell_id}", measurement=measured)
    if (place, one.delegate) == (0, "gpu"):
        return replace(made, status="failed", measurement=None, reason=reason("crash", "SIGSEGV"))
    if (place, one.delegate) == (1, "cpu") and measured is not None:
        void = QUALITY.model_copy(update={"void": ("swapped while timing",)})
        return replace(made, measurement=measured.model_copy(update={"quality": void}))
    if (place, one.delegate) == (2, "litert"):
        return replace(made, environment=one.environment | {"kernel": "6.6.0"})
    if (place, one.delegate) == (3, "gpu"):
        return replace(made, measurement=one.measurement, reused_from=one.cell_id)
    if (place, one.delegate) == (5, "litert"):
        return replace(made, reason=reason("timeout", "ran past 900 s"))
    if one.measurement is None:
        again = measurement(processes("repaired", 9.0, samples=40), "gpu", 42)
        return replace(made, status="done", reason=None, measurement=again)
    return made


def changed_farm() -> HandMadeFarm:
    """Build the demo's farm with a second run of the demo, in which every kind of change occurs."""
    farm = demo_farm()
    newest = farm.campaign_list[1]
    cells = [_changed(one) for one in farm.cells(newest.campaign_id) if one.model != NAMES[4]]
    raw = processes(ADDED, 2.0, samples=40)
    added = cell("demo", ADDED, "litert", HOST, measurement=measurement(raw, "litert", 42))
    cells.append(replace(added, campaign_id="demo-again"))
    models = tuple(dict.fromkeys(one.model for one in cells))
    again = campaign("demo", NIGHT + timedelta(days=1), models, newest.delegates, "litert")
    again = replace(again, campaign_id="demo-again")
    return HandMadeFarm(
        (*farm.campaign_list, again), {**farm.cell_lists, "demo-again": tuple(cells)}, farm.raw
    )


FARM = changed_farm()
OLDER, DEMO, AGAIN = (one.campaign_id for one in FARM.campaign_list)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        # Nothing but shards: the pages of cells have no part in this.
        patch.setattr(archive, "IN_FULL", 0)
        return build_site(FARM, tmp_path_factory.mktemp("compare") / "site").parent


@pytest.fixture
def page(chromium):
    made = chromium.new_page(viewport={"width": 1280, "height": 900})
    errors: list[str] = []
    made.on("pageerror", lambda error: errors.append(str(error)))
    yield made
    made.close()
    assert errors == []


def _open(page: Page, site: Path, *chosen: tuple[str, str]) -> None:
    page.goto("about:blank")
    page.goto(f"{site.as_uri()}/{links.ANY_COMPARISON}#{'&'.join(map('='.join, chosen))}")
    page.locator("table.forest, .notice").first.wait_for()


def _said(change: Change) -> tuple[str, str]:
    """Return the word of the page for a change, and its ratio: only `farm compare` judges speeds."""
    is_decided = change.verdict in ("slower", "faster", "open") or (
        change.verdict == "same" and not change.is_one_result
    )
    shown = "" if change.estimate is None else text.ratio(change.estimate.ratio)
    return "not judged" if is_decided else change.verdict, shown


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(DEMO, AGAIN), rarely(AGAIN, DEMO), rarely(OLDER, AGAIN)])
def test_words_ratios_and_changed_fields_are_those_of_farm_compare(site, page, before, after):
    _open(page, site, ("first", before), ("second", after))
    report = compare_runs(*(by_names(FARM.cell_lists[one]) for one in (before, after)))
    rows = page.locator("table.forest > tbody > tr").evaluate_all(
        """rows => rows.map(row => [
          row.cells[0].textContent, row.cells[1].textContent, row.dataset.state,
          row.querySelector('.drawn .small')?.textContent ?? ''])"""
    )
    shown = sorted((model, column, word, said.partition(" ")[0]) for model, column, word, said in rows)
    assert shown == sorted(
        (text.visible(text.short_name(model)), column_name(delegate, device), *_said(change))
        for change in report.changes
        for model, delegate, device, _ in [change.key]
    )
    differences = page.locator("details li").all_inner_texts()
    assert differences == [
        f"{one.name}: {one.before} → {one.after} {text.counted(one.cells, 'cell')}"
        for one in report.differences
    ]
    if report.mean is not None:
        said = f"geometric mean {text.ratio(report.mean.ratio)} over {report.mean_count} cells, unpaired"
        assert said in page.locator(".meta").inner_text()


@pytest.mark.slow
def test_every_kind_of_change_occurs_here(site, page):
    _open(page, site, ("first", DEMO), ("second", AGAIN))
    rows = page.locator("table.forest > tbody > tr")
    words = rows.evaluate_all("rows => rows.map(row => row.dataset.state)")
    assert {*words} == {"broken", "not judged", "repaired", "void", "same", "added", "removed"}
    what = page.locator("table.forest .drawn .small").all_inner_texts()
    assert any("of ratios over the baseline" in one for one in what)
    assert any("of medians" in one for one in what), "where the baseline's machine changed"


@pytest.mark.slow
def test_two_columns_of_a_campaign_are_compared_by_their_blocks(site, page):
    columns = ("from", f"litert @ {HOST}"), ("to", f"gpu @ {POCL}")
    _open(page, site, ("first", DEMO), ("second", DEMO), *columns)
    rows = page.locator("table.forest > tbody > tr")
    assert rows.count() == len(MODELS)
    resnet = rows.filter(has_text="torchvision_resnet18").locator(".drawn")
    speed = 61.3 / 44.0
    interval = text.ratio_interval((speed * math.exp(-0.02), speed * math.exp(0.02)))
    assert resnet.inner_text().strip() == f"{text.ratio(speed)} [{interval}] of blocks"


@pytest.mark.slow
def test_another_address_is_another_comparison_and_either_column_brings_back_all(site, page):
    columns = ("from", f"litert @ {HOST}"), ("to", f"gpu @ {POCL}")
    _open(page, site, ("first", DEMO), ("second", DEMO), *columns)
    page.get_by_label("Column after").select_option("")
    rows = page.locator("table.forest > tbody > tr")
    rows.nth(len(MODELS)).wait_for()
    assert "from=" not in page.url
    page.evaluate("address => { location.hash = address; }", f"first={OLDER}&second={AGAIN}")
    page.locator("table.forest tr", has_text="struck").first.wait_for()


@pytest.mark.slow
def test_a_choice_is_in_the_address_and_leads_to_the_cells(site, page):
    page.goto(f"{site.as_uri()}/{links.ANY_COMPARISON}")
    page.locator("table.forest").wait_for()
    assert page.get_by_label("Campaign before").input_value() == DEMO, "of the same name"
    page.get_by_label("Campaign before").select_option(OLDER)
    page.locator("table.forest tr", has_text="struck").first.wait_for()
    assert page.url.endswith(f"#second={AGAIN}&first={OLDER}")
    page.get_by_label("Only this state").select_option("removed")
    assert page.url.endswith(f"#second={AGAIN}&first={OLDER}&state=removed")
    row = page.locator("table.forest > tbody > tr:visible", has_text="struck").first
    row.locator("[data-column=before] a").click()
    page.locator("h1 .on").wait_for()
    assert page.locator("h1").inner_text().startswith("struck on ")


@pytest.mark.slow
def test_without_a_script_there_are_the_comparisons_with_the_campaign_before(site, chromium):
    page = chromium.new_page(java_script_enabled=False)
    page.goto(f"{site.as_uri()}/{links.ANY_COMPARISON}")
    assert page.locator("tr[data-campaign]").count() == 3
    page.locator("a.judged").click()
    assert page.locator(".kicker").inner_text() == "Comparison"
    page.close()


@pytest.mark.slow
def test_what_is_not_there_is_said(site, page):
    def said(*chosen: tuple[str, str]) -> str:
        _open(page, site, *chosen)
        return page.locator(".notice").inner_text()

    ends = ("first", OLDER), ("second", AGAIN)
    assert said(("first", "nowhere")) == "This site has no campaign nowhere: choose another one."
    assert said(*ends, ("from", "npu @ phone")) == "Neither campaign has a cell of npu @ phone."
    shard = site / links.shard(links.shard_name(OLDER, 0))
    content = shard.read_text()
    shard.write_text("")
    assert said(*ends) == f"The data {shard.stem} cannot be read. Build the site again."
    shard.write_text(content[:-40] + content[-4:])
    assert said(*ends).startswith(f"The data {shard.stem} cannot be read: ")
    shard.unlink()
    assert said(*ends) == f"This site has no data {shard.stem}. Build it again."
    shard.write_text(content)
