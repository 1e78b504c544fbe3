"""The site in a real browser, opened from file://: complete, clickable, silent towards the outside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from orchestrator.site import home, links
from orchestrator.site.build import build_site
from tests.orchestrator.site.records import HOST, HOSTILE_NAMES, MODELS, POCL, demo_farm

DELEGATES = ("litert", "cpu", "gpu")
NEWEST = links.campaign_page(demo_farm().campaign_list[1].campaign_id)
"""The page with the matrix of the demo's campaign."""

FIRST_ROWS = 10
"""Lines of home that are shown at first."""


@dataclass
class Visit:
    """A page, and what it did that it must not do."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def open(self, file: Path) -> None:
        self.page.goto(file.as_uri())


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(home, "_FIRST_ROWS", FIRST_ROWS)
        return build_site(demo_farm(), tmp_path_factory.mktemp("browser") / "site").parent


@pytest.fixture
def visit(chromium) -> Iterator[Visit]:
    yield from _visit(chromium)


@pytest.fixture
def visit_without_script(chromium) -> Iterator[Visit]:
    yield from _visit(chromium, java_script_enabled=False)


def _visit(chromium: Browser, **options) -> Iterator[Visit]:
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, **options)
    made = Visit(context.new_page())
    made.page.on("console", lambda m: made.complaints.append(f"console {m.type}: {m.text}"))
    made.page.on("pageerror", lambda e: made.complaints.append(f"page error: {e}"))
    made.page.on("dialog", lambda d: (made.complaints.append(f"dialog: {d.message}"), d.dismiss()))
    made.page.on("requestfailed", lambda r: made.complaints.append(f"failed: {r.url}"))
    made.page.on("request", lambda r: _local_only(r.url, made.complaints))
    yield made
    context.close()
    assert made.complaints == []


def _local_only(url: str, complaints: list[str]) -> None:
    if not url.startswith(("file://", "data:")):
        complaints.append(f"request: {url}")


def test_matrix_has_every_model_on_every_delegate(site, visit):
    visit.open(site / NEWEST)
    heads = visit.page.locator("table.matrix thead .delegate").all_inner_texts()
    assert heads == list(DELEGATES)
    rows = visit.page.locator("table.matrix > tbody > tr")
    assert rows.count() == len(MODELS)
    for i, model in enumerate(MODELS):
        assert rows.nth(i).locator("th a").inner_text() == model
        cells = rows.nth(i).locator("> td")
        assert cells.count() == len(DELEGATES)
        for j in range(len(DELEGATES)):
            shown = cells.nth(j).inner_text()
            assert " ms" in shown or "unsupported" in shown


@pytest.mark.slow
@pytest.mark.parametrize("who", ["visit", "visit_without_script"])
def test_drill_down_reaches_the_raw_samples(site, who, request):
    visit = request.getfixturevalue(who)
    page = visit.page
    visit.open(site / NEWEST)
    page.get_by_role("link", name="face_landmark").first.click()
    assert page.locator("h1").inner_text() == "face_landmark"
    page.get_by_role("link", name="gpu").first.click()
    assert "face_landmark on gpu @" in page.locator("h1").inner_text()
    assert page.locator("#samples svg g.process").count() == 3
    assert page.locator("#samples svg path.dots:not(.warm)").first.get_attribute("d").count("h0") > 100
    numbers = page.locator("#numbers")
    assert not numbers.locator("table").first.is_visible()
    numbers.locator("summary").click()
    assert numbers.locator("table").first.is_visible()
    assert float(numbers.locator("td").first.inner_text()) > 0


@pytest.mark.slow
def test_number_in_the_matrix_leads_to_its_cell(site, visit):
    visit.open(site / NEWEST)
    number = visit.page.locator("table.matrix > tbody a.p50").first
    p50 = number.inner_text().split()[0]
    number.click()
    assert visit.page.locator("tr.key td").inner_text() == p50


@pytest.mark.slow
@pytest.mark.parametrize("who", ["visit", "visit_without_script"])
def test_fallbacks_are_one_click_away_in_the_matrix(site, who, request):
    visit = request.getfixturevalue(who)
    page = visit.page
    visit.open(site / "index.html")
    page.get_by_role("link", name="regressions").click()
    badge = page.locator("details[data-chip=delegation]").first
    assert badge.locator("summary").inner_text() == "24/42 partial"
    assert not badge.locator("table").is_visible()
    badge.locator("summary").click()
    first = badge.locator("tbody tr").first
    assert first.locator("td").first.inner_text() == "6"
    assert "6 CUSTOM:MaxPoolingWithArgmax2D (0, 3, 6, 9, 12, 15)" in first.inner_text()
    assert "is not lowered" in first.inner_text()
    verdict = page.locator("details[data-chip=accuracy]").first
    verdict.locator("summary").click()
    assert "cosine" in verdict.inner_text()


def _one_page_of_each_kind() -> list[str]:
    """Home, method, both campaigns, and models and cells of the campaign in which everything goes wrong."""
    farm = demo_farm()
    odd = farm.campaign_list[0]
    names = ("struck", "partial", "slow", HOSTILE_NAMES[1], HOSTILE_NAMES[-1])
    return [
        links.INDEX,
        links.METHOD,
        links.TRENDS,
        links.FAILURES,
        links.ANY_COMPARISON,
        *(links.history_page(name) for name in (*MODELS, *names)),
        *(links.device_page(name) for name in (HOST, POCL)),
        *(links.campaign_page(c.campaign_id) for c in farm.campaign_list),
        *(links.model_page(odd.campaign_id, name) for name in names),
        *(links.cell_page(c.cell_id) for c in farm.cells(odd.campaign_id) if c.model in names),
    ]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("width", "scheme"),
    [(1280, "light"), (360, "dark"), (360, "light")],
)
def test_pages_fit_and_keep_silent(site, chromium, width, scheme):
    for visit in _visit(chromium, color_scheme=scheme):
        visit.page.set_viewport_size({"width": width, "height": 900})
        for path in _one_page_of_each_kind():
            visit.open(site / path)
            _wait_until_drawn(visit.page, path)
            beyond = visit.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert beyond <= 0, f"{path} is {beyond} px too wide at {width}"


def _wait_until_drawn(page: Page, path: str) -> None:
    page.wait_for_selector("table.forest" if path == links.ANY_COMPARISON else "h1")


@pytest.mark.exhaustive
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_barrier_on_any_kind_of_page(site, chromium, scheme):
    farm = demo_farm()
    newest = farm.campaign_list[1]
    cell = next(c for c in farm.cells(newest.campaign_id) if c.delegate == "gpu")
    shard = links.shard_name(newest.campaign_id, 0)
    pages = (
        links.INDEX, links.METHOD, links.TRENDS, links.FAILURES, links.PUBLISHED, NEWEST,
        links.ANY_COMPARISON,
        links.history_page(cell.model), links.device_page(HOST), links.cell_page(cell.cell_id),
        links.model_page(newest.campaign_id, cell.model), links.shard_page(shard),
        links.any_cell_page(shard, cell.cell_id),
    )  # fmt: skip
    axe = Path(__file__).with_name("axe.min.js").read_text(encoding="utf-8")
    # The page's own policy would not let a script of a test in.
    page = chromium.new_page(color_scheme=scheme, bypass_csp=True)
    for path in pages:
        page.goto("about:blank")
        page.goto(f"{site.as_uri()}/{path}")
        _wait_until_drawn(page, path)
        page.evaluate(axe)
        found = page.evaluate("axe.run()")
        faults = [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]]
        assert not faults, (path, faults)
        assert found["passes"]
    page.close()


def test_style_sheet_is_in_force(site, visit):
    visit.open(site / NEWEST)
    assert (
        visit.page.locator("table.matrix").evaluate("e => getComputedStyle(e).borderCollapse") == "collapse"
    )


@pytest.mark.slow
def test_rows_are_filtered_sorted_and_copied(site, visit):
    page = visit.page
    visit.open(site / NEWEST)
    rows = page.locator("table.matrix > tbody > tr")
    page.get_by_label("Filter rows").fill("torch v3")
    assert [rows.nth(i).is_visible() for i in range(len(MODELS))].count(True) == 1
    page.wait_for_url(lambda url: url.endswith("#filter=torch%20v3"))
    page.get_by_label("Filter rows").fill("")
    page.get_by_label("sort by gpu").click()
    shown = page.locator("table.matrix > tbody > tr > td:nth-child(4)").evaluate_all(
        "t => t.map(e => e.dataset.sort)"
    )
    numbers = [float(v) for v in shown if v]
    assert numbers == sorted(numbers)
    assert shown[-1] == "", "no number sorts last"
    markdown = page.evaluate("markdown(document.querySelector('table.matrix'))")
    lines = markdown.splitlines()
    assert len(lines) == len(MODELS) + 3
    assert len({line.count(" | ") for line in lines}) == 1
    assert "int8 activations are not supported" in markdown


def test_home_is_filtered_and_sorted_and_the_address_keeps_it(site, visit):
    page = visit.page
    visit.open(site / "index.html")
    rows = page.locator("table.home > tbody > tr")
    assert rows.count() == len(MODELS) + 3 + len(HOSTILE_NAMES)
    page.get_by_label("Filter rows").first.fill("torchvision")
    page.get_by_label("Only this device").select_option("bench-01/opencl-0")
    page.get_by_label("sort by p50").click()
    page.get_by_label("sort by p50").click()
    assert page.url.endswith("#filter=torchvision&device=bench-01%2Fopencl-0&sort=2-descending")
    shown = page.locator("table.home > tbody > tr:visible th a").all_inner_texts()
    assert shown[0] == "torchvision_resnet18"
    assert len(shown) == 3
    page.reload()
    assert page.locator("table.home > tbody > tr:visible th a").all_inner_texts() == shown


@pytest.mark.slow
def test_of_a_long_home_the_first_lines_are_shown_and_a_filter_finds_the_others(site, visit):
    page = visit.page
    visit.open(site / "index.html")
    shown = page.locator("table.home > tbody > tr:visible")
    every = len(MODELS) + 3 + len(HOSTILE_NAMES)
    assert shown.count() == FIRST_ROWS
    assert page.locator("output").first.inner_text() == f"{every} of {every} rows, {FIRST_ROWS} of them shown"
    page.get_by_label("Filter rows").first.fill("=HYPERLINK")
    assert shown.count() == 1
    page.get_by_label("Filter rows").first.fill("")
    page.get_by_label("sort by model").first.click()
    assert shown.locator("th a").first.inner_text() == "../../x"
    assert shown.count() == FIRST_ROWS
    page.get_by_role("button", name="Show all").click()
    assert shown.count() == every


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value"), [("delegate", "gpu"), ("state", "result"), ("level", "quick")])
def test_home_is_narrowed_to_what_the_address_says_on_a_phone_too(site, visit, name, value):
    visit.page.set_viewport_size({"width": 360, "height": 900})
    visit.page.goto(f"{(site / 'index.html').as_uri()}#{name}={value}")
    rows = visit.page.locator("table.home > tbody > tr")
    fitting = rows.evaluate_all(
        "(rows, [name, value]) => rows.filter(row => row.dataset[name] === value).length", [name, value]
    )
    assert fitting
    assert visit.page.locator("table.home > tbody > tr:visible").count() == min(fitting, FIRST_ROWS)


@pytest.mark.slow
def test_an_address_that_is_no_encoding_is_taken_as_it_stands(site, visit):
    visit.page.goto(f"{(site / 'index.html').as_uri()}#filter=100%")
    assert visit.page.get_by_label("Filter rows").first.input_value() == "100%"
    assert visit.page.locator("output").first.inner_text().startswith("0 of ")


def test_home_needs_no_script(site, visit_without_script):
    page = visit_without_script.page
    visit_without_script.open(site / "index.html")
    assert page.locator("table.home > tbody > tr:visible").count() == len(MODELS) + 3 + len(HOSTILE_NAMES)
    page.get_by_role("link", name="torchvision_resnet18").first.click()
    assert page.locator("h1").inner_text() == "torchvision_resnet18"


@pytest.mark.slow
def test_filter_survives_in_the_address(site, visit):
    visit.page.goto((site / NEWEST).as_uri() + "#filter=resnet")
    assert visit.page.locator("table.matrix > tbody > tr:visible").count() == 1


def test_a_cell_is_drawn_from_its_shard_and_a_shard_lists_its_cells(site, visit):
    odd = demo_farm().campaign_list[0]
    name, page = links.shard_name(odd.campaign_id, 0), visit.page

    def open_at(place: str) -> None:
        page.goto("about:blank")
        page.goto(f"{(site / links.ANY_CELL).as_uri()}#{place}")

    open_at(name)
    page.locator("tbody tr", has_text="struck").get_by_role("link", name="gpu @").click()
    page.wait_for_selector("h1 .on")
    assert page.locator("h1").inner_text().startswith("struck on gpu @")
    assert "Takes part in no comparison: wrong output" in page.locator("main").inner_text()
    assert "rel_l2" in page.locator("main").inner_text()
    page.locator(".meta").get_by_role("link", name=odd.name).click()
    assert page.locator("h1").inner_text() == odd.name
    open_at(name)
    page.get_by_role("link", name=HOSTILE_NAMES[0]).first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    open_at(f"{name}/nothing")
    page.get_by_text("No cell nothing is in the data").wait_for()
    open_at("nowhere")
    page.get_by_text("The address names no cell").wait_for()


def test_hostile_names_run_nothing(site, visit):
    visit.open(site / "index.html")
    visit.page.get_by_role("link", name="regressions").click()
    shown = visit.page.locator("table.matrix > tbody > tr > th a").all_inner_texts()
    for name in HOSTILE_NAMES[:4]:
        assert name in shown
    visit.page.get_by_role("link", name=HOSTILE_NAMES[0]).first.click()
    assert visit.page.locator("h1").inner_text() == HOSTILE_NAMES[0]


@pytest.mark.exhaustive
def test_the_site_of_a_real_campaign_shows_its_results(campaign, visit, tmp_path):
    built = campaign.farm("site", "build", "--out", str(tmp_path / "site"))
    assert built.returncode == 0, built.stderr
    results = campaign.results
    page = visit.page
    visit.open(tmp_path / "site/index.html")
    page.locator("#campaigns tbody a").first.click()
    models = page.locator("table.matrix > tbody > tr > th a").all_inner_texts()
    assert set(models) == {r["model"] for r in results}
    cells = page.locator("table.matrix > tbody > tr > td:not(.void)")
    assert cells.count() == len(results)
    measured = page.locator("table.matrix > tbody a.p50")
    assert measured.count() == sum(bool(r["latency_ms"] and r["latency_ms"]["p50"]) for r in results)
    measured.first.click()
    timed = page.locator("#samples svg path.dots:not(.warm)").last.get_attribute("d")
    assert timed.count("h0") >= 12, "the last process; the first one is cold and not timed"
    assert page.locator("#environment dd").count() > 5


@pytest.mark.slow
def test_a_flame_graph_opens_and_a_click_enlarges_a_frame(site, visit):
    farm = demo_farm()
    cells = farm.cells(farm.campaign_list[0].campaign_id)
    cell = next(one for one in cells if one.delegate == "gpu" and one.status == "done")
    visit.open(site / links.flame_page(cell.cell_id))
    frames = visit.page.locator(".frame > button")
    names = frames.all_inner_texts()
    assert names[0] == "one run"
    assert "7 CONV_2D" in names
    frames.last.click()
    assert visit.page.locator("#about").inner_text().startswith(names[-1])
