"""Metric, baseline and version of the home page in a real browser: the numbers are those of the cells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

from orchestrator.results import format as text
from orchestrator.results.records import CellRecord
from orchestrator.results.speedups import counts
from orchestrator.site import home, links
from orchestrator.site.build import build_site
from tests.orchestrator.site.records import MODELS
from tests.orchestrator.site.test_over_time import MODEL, nightly_farm

FARM = nightly_farm()
DEMO = FARM.campaign_list[1].campaign_id
OTHERS = [name for name in MODELS if name != MODEL]
"""Models of the demo alone, which was measured without a version."""

SHOWN = 12


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(home, "_FIRST_ROWS", SHOWN)
        return build_site(FARM, tmp_path_factory.mktemp("choices") / "site").parent


@pytest.fixture
def page(chromium, site) -> Iterator[Page]:
    made = chromium.new_page(viewport={"width": 1280, "height": 900})
    complaints: list[str] = []
    made.on("pageerror", lambda error: complaints.append(str(error)))
    made.goto((site / links.INDEX).as_uri())
    yield made
    made.close()
    assert complaints == []


def line(page: Page, model: str) -> Locator:
    return page.locator("table.home > tbody > tr", has=page.get_by_role("link", name=model, exact=True))


def counted(model: str) -> list[CellRecord]:
    return [cell for cell in FARM.cell_lists[DEMO] if cell.model == model and counts(cell)]


def init_of(cell: CellRecord) -> float:
    assert cell.measurement is not None
    return cell.measurement.latency_ms.init or 0.0


def said(page: Page, model: str, column: str) -> str:
    return " ".join(line(page, model).locator(f"td[data-column='{column}']").inner_text().split())


@pytest.mark.slow
def test_another_metric_shows_each_model_s_best_by_it(page):
    page.get_by_label("Metric").select_option("init")
    page.wait_for_selector("td[data-column='init, cold, ms']")
    for model in OTHERS:
        best = min(counted(model), key=init_of)
        assert said(page, model, "init, cold, ms") == text.milliseconds(init_of(best))
        assert said(page, model, "fastest") == f"{best.delegate} @ {best.device}"
        assert said(page, model, "measured") == f"{best.finished_at:%Y-%m-%d}"
    page.get_by_label("sort by init, cold, ms").click()
    shown = page.locator("table.home > tbody > tr:visible td.key").all_inner_texts()
    numbers = [float(one.replace("\u202f", "")) for one in shown]
    assert len(numbers) > 5
    assert numbers == sorted(numbers)


@pytest.mark.slow
def test_another_baseline_gives_quotients_that_are_called_unpaired(page):
    page.get_by_label("Baseline").select_option("cpu")
    page.wait_for_selector("td .unpaired")
    for model in OTHERS:
        cells = {cell.delegate: cell for cell in counted(model)}
        best = min(cells.values(), key=lambda cell: cell.measurement.latency_ms.p50)
        if best.delegate == "cpu":
            assert said(page, model, "ratio") == "baseline"
            continue
        quotient = cells["cpu"].measurement.latency_ms.p50 / best.measurement.latency_ms.p50
        assert said(page, model, "ratio") == f"≈ {text.known(quotient, None)}{text.TIMES} unpaired"
    page.get_by_label("Baseline").select_option("litert")
    page.wait_for_selector(".tone-faster, .tone-faster-much")
    assert "unpaired" not in said(page, OTHERS[0], "ratio"), "the two were measured by turns"


@pytest.mark.slow
def test_memory_is_told_as_a_share_and_not_as_a_speed(page):
    page.get_by_label("Metric").select_option("memory")
    page.wait_for_selector("td[data-column='peak memory, MiB']")
    ratios = page.locator("table.home > tbody > tr:visible td[data-column='ratio']").all_inner_texts()
    assert any(f"{text.TIMES} the memory" in one for one in ratios)
    assert not any("slower" in one for one in ratios)


@pytest.mark.slow
def test_a_version_shows_what_was_measured_for_it_and_the_address_keeps_it(page):
    before = page.locator("table.home tbody").inner_html()
    page.get_by_label("Version").select_option("c03")
    page.wait_for_url(lambda url: url.endswith("#version=c03"))
    page.get_by_text("no p50, ms of c03").first.wait_for()
    own = {cell.delegate: cell for cell in FARM.cell_lists["night03"]}
    best = min(own.values(), key=lambda cell: cell.measurement.latency_ms.p50)
    p50 = text.milliseconds(best.measurement.latency_ms.p50)
    assert said(page, MODEL, "p50, ms").startswith(p50)
    assert said(page, MODEL, "measured") == f"{best.finished_at:%Y-%m-%d}"
    page.get_by_label("Only this state").select_option("result")
    assert page.locator("table.home > tbody > tr:visible").count() == 1
    page.reload()
    page.wait_for_selector("td[data-column='measured']:visible")
    page.wait_for_function("document.querySelectorAll('table.home > tbody > tr:not([hidden])').length === 1")
    assert said(page, MODEL, "p50, ms").startswith(p50)
    page.get_by_label("Only this state").select_option("")
    page.get_by_label("Version").select_option("")
    page.wait_for_function("!document.body.innerText.includes('of c03')")
    page.get_by_role("button", name="Show all").click()
    after = page.locator("table.home tbody").inner_html()
    assert after.count("<tr") == before.count("<tr")
    assert after.count('<svg class="spark"') == before.count('<svg class="spark"')


@pytest.mark.slow
def test_data_that_is_missing_is_said_and_the_page_stays(page, site):
    script = site / links.choice("c05")
    content = script.read_bytes()
    script.unlink()
    page.get_by_label("Version").select_option("c05")
    page.get_by_text("Build it again.").wait_for()
    assert said(page, OTHERS[0], "outputs")
    script.write_bytes(content)
