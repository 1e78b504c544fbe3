"""A site of six columns in a real browser on a phone, a laptop and a wide screen, light and dark."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from orchestrator.results.format import TIMES
from orchestrator.results.speedups import Baselines, speedup
from orchestrator.results.wording import factor_text
from orchestrator.site import links
from orchestrator.site.build import build_site
from tests.orchestrator.site.wide import COLUMNS, MODELS, wide_farm
from tests.sweeps import rarely

FARM = wide_farm()
(CAMPAIGN,) = FARM.campaign_list
CELLS = FARM.cells(CAMPAIGN.campaign_id)
MODEL = links.model_page(CAMPAIGN.campaign_id, tuple(MODELS)[1])
CELL = links.cell_page(CELLS[2].cell_id)
MATRIX = links.campaign_page(CAMPAIGN.campaign_id)
PAGES = (links.INDEX, MATRIX, MODEL, CELL)
SCREENS = [(390, "light"), rarely((1280, "dark")), rarely((2560, "light"))]

TORN = """() => [...document.querySelectorAll('td.num')].filter(cell => {
  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    if (walker.currentNode.data.trim() && range.getClientRects().length > 1) return true;
  }
  return false;
}).map(cell => cell.textContent)"""
"""Figures that do not stand on one line."""

BEYOND = """selector => [...document.querySelectorAll(selector)].filter(one => {
  const box = one.getBoundingClientRect();
  return box.width && (box.left < 0 || box.right > document.documentElement.clientWidth);
}).map(one => one.textContent.trim())"""
"""Elements that lie beside the screen, whether or not something scrolls."""

FAINT = """() => {
  const channels = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = one => {
    for (; one; one = one.parentElement) {
      const found = channels(getComputedStyle(one).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll('main *')].filter(one =>
    one.getClientRects().length && !one.closest('svg') && !one.closest('button')
    && [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim())
  ).filter(one => {
    const [a, b] = [light(channels(getComputedStyle(one).color)), light(ground(one))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5;
  }).map(one => `${one.className || one.tagName}: ${one.textContent.trim().slice(0, 30)}`);
}"""
"""Texts whose contrast is below 4.5 : 1, which WCAG 2.1 asks for at level AA."""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    return build_site(FARM, tmp_path_factory.mktemp("layout") / "site").parent


@pytest.fixture(scope="module", params=SCREENS, ids=lambda screen: f"{screen[0]}-{screen[1]}")
def screen(chromium: Browser, request) -> Iterator[Page]:
    """Open a page on each screen, which the tests of a screen share."""
    width, scheme = request.param
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    yield context.new_page()
    context.close()


@pytest.mark.slow
def test_pages_of_six_columns_fit_every_screen(site: Path, screen: Page) -> None:
    width = screen.viewport_size["width"]
    for path in PAGES:
        screen.goto((site / path).as_uri())
        beyond = screen.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert beyond <= 0, f"{path} is {beyond} px too wide"
        assert screen.evaluate(TORN) == [], f"{path}: torn figures"
        # A screen of each scheme: colours do not depend on the width.
        if width < 2000:
            assert screen.evaluate(FAINT) == [], f"{path}: faint texts"
        assert screen.evaluate(BEYOND, "figure.plot text") == [], f"{path}: labels beside the screen"
        sizes = screen.locator("figure.plot text.label").evaluate_all(
            "all => all.map(one => one.getBoundingClientRect().height)"
        )
        assert all(11 <= size <= 20 for size in sizes), f"{path}: labels grow or shrink with the drawing"
        assert bool(sizes) == (path not in (links.INDEX, MATRIX))
        if path == MODEL:
            assert screen.evaluate(BEYOND, ".places .speedup") == []
            assert screen.locator(".places .speedup").count() == 3, "a void one has none"
        if path == MATRIX:
            _matrix_fits(screen, width)


def _matrix_fits(screen: Page, width: int) -> None:
    chips = screen.locator(".chip").all_text_contents()
    assert chips
    assert not [text for text in chips if "None" in text]
    for summary in screen.locator(".chip.line > summary").all():
        assert summary.bounding_box()["height"] < 30, "a reason takes one line"
    if width == 1280:
        hidden = "part => part.scrollWidth - part.clientWidth"
        assert screen.locator(".scroll.wide").first.evaluate(hidden) <= 0, "six columns at once"
    if width > 2000:
        assert screen.evaluate(BEYOND, ".matrix td") == []
        table = screen.locator("table.matrix").bounding_box()
        assert table["width"] > 1500
        assert abs(table["x"] * 2 + table["width"] - width) < 40, "in the middle"
    if width < 500:
        assert screen.evaluate(BEYOND, ".matrix td") == []


@pytest.mark.slow
def test_the_mean_of_the_speed_ups_is_that_of_the_rows_shown(site: Path, chromium: Browser) -> None:
    baselines = Baselines.among(CAMPAIGN.baseline, CELLS)
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.goto((site / MATRIX).as_uri())
    for word, models in (("mobilenet", 1), ("n", 5), ("whisper", 1), ("", 5)):
        page.get_by_label("Filter rows").first.fill(word)
        for index, (delegate, device) in enumerate(COLUMNS[1:], 3):
            chosen = [
                found.ratio
                for cell in CELLS
                if (cell.delegate, cell.device) == (delegate, device) and word in cell.model
                if (found := speedup(cell, baselines.of(cell))) is not None and found.verdict != "void"
            ]
            shown = page.locator(f"tfoot td:nth-child({index})").inner_text().split("\n")
            if not chosen:
                assert shown == ["no ratio"]
                continue
            mean = math.exp(math.fsum(map(math.log, chosen)) / len(chosen))
            said = f"{factor_text(mean).replace('x', TIMES)} over {len(chosen)} of {models} models, unpaired"
            assert " ".join(shown).split() == said.split()
    page.close()


@pytest.mark.slow
def test_a_reason_is_one_line_and_all_of_it_behind_its_badge(site: Path, chromium: Browser) -> None:
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.goto((site / MATRIX).as_uri())
    row = page.locator("table.matrix > tbody > tr").nth(3)
    badge = row.locator("details[data-chip=reason]").first
    assert not badge.locator(".panel").is_visible()
    badge.locator("summary").click()
    assert "run it on the delegate cpu" in badge.locator(".panel").inner_text()
    repeated = row.locator("details[data-chip=reason]").last
    assert repeated.locator("summary").inner_text() == "why"
    repeated.locator("summary").click()
    assert "install the extra" in repeated.locator(".panel").inner_text()
    page.close()
