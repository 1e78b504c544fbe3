"""Five questions that a user brings to the site, answered in a real browser by at most five clicks each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page

from orchestrator.site.build import build_site
from tests.orchestrator.site.records import POCL
from tests.orchestrator.site.test_over_time import MODEL, STEP, nightly_farm

MOST_CLICKS = 5


class Reader:
    """A user who starts at the home page, and counts."""

    def __init__(self, page: Page, site: Path) -> None:
        self.page = page
        self.clicks = 0
        page.goto((site / "index.html").as_uri())

    def click(self, target: Locator) -> None:
        self.clicks += 1
        assert self.clicks <= MOST_CLICKS
        target.click()

    def link(self, name: str) -> None:
        self.click(self.page.get_by_role("link", name=name, exact=True).first)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    return build_site(nightly_farm(), tmp_path_factory.mktemp("questions") / "site").parent


@pytest.fixture
def reader(chromium: Browser, site: Path) -> Iterator[Reader]:
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    yield Reader(page, site)
    page.close()


def test_which_delegate_for_this_model_here(reader: Reader) -> None:
    row = reader.page.locator("table.home > tbody > tr", has_text="torchvision_resnet18")
    assert row.locator("[data-column=fastest]").inner_text().split() == ["gpu", "@", POCL]
    reader.link("torchvision_resnet18")
    reader.click(reader.page.get_by_label("sort by p50"))
    shown = reader.page.locator("table.places > tbody > tr:not(.note) > th").all_inner_texts()
    assert [one.split()[0] for one in shown] == ["gpu", "litert", "cpu"]
    verdicts = reader.page.locator("[data-column='over the baseline']").all_inner_texts()
    assert "1.39" in verdicts[0]
    assert "baseline" in verdicts[1]
    assert "slower" in verdicts[2]


@pytest.mark.slow
def test_what_got_slower_last_week_and_by_which_commit(reader: Reader) -> None:
    assert f"at c{STEP:02}" in reader.page.locator("ul.lines").inner_text()
    reader.link("Trends")
    row = reader.page.locator("table[data-tools=home] > tbody > tr", has_text="slower").first
    assert row.locator("[data-column=at]").inner_text().split()[0] == f"c{STEP:02}"
    assert "2026-11-30" in row.locator("[data-column=at]").inner_text()
    assert "▼ slower" in row.locator("[data-column=time]").inner_text()
    assert row.locator("[data-column=state]").inner_text() == "confirmed"
    reader.click(row.get_by_role("link", name=MODEL))
    drawn = reader.page.locator("figure.plot").filter(has_text=f"at c{STEP:02}")
    assert drawn.first.is_visible()


@pytest.mark.slow
def test_what_cannot_run_on_this_gpu_and_why(reader: Reader) -> None:
    reader.link(POCL)
    causes = reader.page.locator("section")
    why = causes.filter(has_text="int8 activations are not supported in fp32")
    assert "unsupported" in why.inner_text()
    reader.click(why.get_by_text("The cells"))
    assert "torchvision_mobilenet_v2__static_int8 on gpu" in why.inner_text()
    crashed = causes.filter(has_text="SIGSEGV")
    reader.click(crashed.get_by_text("The cells"))
    assert f"{MODEL} on gpu" in crashed.inner_text()
    assert "on litert" not in reader.page.locator("main").inner_text(), "what failed elsewhere"


@pytest.mark.slow
def test_is_this_number_good(reader: Reader) -> None:
    row = reader.page.locator("table.home > tbody > tr", has_text="torchvision_resnet18")
    reader.click(row.locator("[data-column=fastest] a"))
    grade = reader.page.locator("#grade + p + dl")
    assert grade.is_visible()
    said = grade.inner_text()
    assert "4 blocks" in said, "what it was measured by"
    assert "foreign CPU time" in said, "what was watched"
    assert "clock: the machine tells none" in said, "and what was not"


@pytest.mark.slow
def test_how_do_i_get_it_again(reader: Reader) -> None:
    row = reader.page.locator("table.home > tbody > tr", has_text="torchvision_resnet18")
    reader.click(row.locator("[data-column=fastest] a"))
    command = reader.page.locator(".meta code", has_text="farm repro").inner_text()
    cell_id = reader.page.url.rpartition("/")[2].removesuffix(".html")
    assert command == f"farm repro {cell_id}"
