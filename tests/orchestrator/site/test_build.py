"""The built site: complete, linked, closed to the outside, and true to the records."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from agent.wire.measurement import Latency
from orchestrator.errors import FarmError
from orchestrator.results.export import result_json
from orchestrator.results.format import visible
from orchestrator.site import build, links, parts
from orchestrator.site.build import build_site
from orchestrator.site.shards import read_shard
from runtime.common.statistics import MIN_UNITS
from runtime.judge import bounds, rules
from runtime.measure.samples.summary import FLOORS
from tests.orchestrator.site.reading import read_page
from tests.orchestrator.site.records import HOSTILE_NAMES, MODELS, HandMadeFarm, demo_farm

FARM = demo_farm()
OLDER, NEWEST = FARM.campaign_list
ALL_CELLS = [cell for cells in FARM.cell_lists.values() for cell in cells]
SCRIPTS = {
    links.INDEX: (links.SHARDS_SCRIPT, links.CHOICES_SCRIPT, links.SCRIPT),
    links.ANY_CELL: (links.SHARDS_SCRIPT, links.CELL_SCRIPT),
    links.ANY_COMPARISON: (links.SHARDS_SCRIPT, links.SCRIPT, links.COMPARE_SCRIPT),
}
"""The scripts of the pages that read data beside them; every other page has one."""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    return build_site(FARM, tmp_path_factory.mktemp("built") / "site").parent


def _pages(site: Path) -> list[Path]:
    """All pages but those that stand alone, with their own script and style in them."""
    return sorted(path for path in site.rglob("*.html") if path.parent.name != "flames")


def _cell(model: str, delegate: str):
    (found,) = [c for c in ALL_CELLS if (c.model, c.delegate) == (model, delegate)]
    return found


def _cell_page(site: Path, model: str, delegate: str):
    return read_page(site / links.cell_page(_cell(model, delegate).cell_id))


def test_every_link_leads_to_a_file_and_anchor_of_the_site(site):
    for path in _pages(site):
        page = read_page(path)
        targets = [a["href"] for _, a in page.elements if "href" in a] + page.values("src")
        for target in targets:
            if target == "data:,":
                continue
            assert not re.match(r"[a-z]+:|/", target), f"{path.name}: {target} leaves the site"
            file, _, anchor = target.partition("#")
            there = (path.parent / file).resolve() if file else path
            assert there.is_file(), f"{path.name}: {target} is missing"
            assert there.is_relative_to(site.resolve())
            if there == (site / links.ANY_CELL).resolve() and file:
                shard, _, cell = anchor.partition("/")
                assert cell in read_shard((site / links.shard(shard)).read_text())
            elif there == (site / links.ANY_COMPARISON).resolve() and anchor:
                chosen = dict(parse_qsl(anchor))
                assert chosen.keys() <= {"first", "second"}
                assert {*chosen.values()} <= {*read_page(there).values("data-campaign")}
            elif anchor:
                assert anchor in read_page(there).values("id"), f"{path.name}: no anchor for {target}"


def test_every_file_is_reachable_from_the_home_page(site):
    seen: set[Path] = set()
    waiting = [site / "index.html"]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        if path.suffix == ".html":
            page = read_page(path)
            for target in page.values("href") + page.values("src"):
                file, _, anchor = target.partition("#")
                if file.endswith(links.ANY_CELL):
                    waiting.append((site / links.shard(anchor.partition("/")[0])).resolve())
                if file and target != "data:,":
                    waiting.append((path.parent / file).resolve())
    # What is read once something is chosen on the home page.
    (choices,) = read_page(site / links.INDEX).values("data-choices")
    seen |= {(site / links.choice(version)).resolve() for version, _ in json.loads(choices)["versions"]}
    seen.add((site / links.choice("")).resolve())
    # What the next build takes over is for no reader.
    seen.add((site / links.SUMMARIES).resolve())
    assert seen == {p.resolve() for p in site.rglob("*") if p.is_file()}


def test_pages_nest_and_carry_no_inline_code_or_style(site):
    for path in _pages(site):
        page = read_page(path)
        assert not page.unbalanced, f"{path.name}: {page.unbalanced}"
        names = {name for _, attributes in page.elements for name in attributes}
        assert not {n for n in names if n.startswith("on")}, path.name
        assert "style" not in names
        assert "style" not in {tag for tag, _ in page.elements}
        scripts = tuple(a["src"].removeprefix("../") for a in page.attributes("script"))
        assert scripts == SCRIPTS.get(str(path.relative_to(site)), (links.SCRIPT,))
        assert len(page.values("id")) == len(set(page.values("id"))), f"{path.name}: an id occurs twice"


def test_every_page_forbids_everything_from_outside(site):
    for path in _pages(site):
        (policy,) = [a["content"] for a in read_page(path).attributes("meta") if "http-equiv" in a]
        for rule in ("default-src 'none'", "style-src 'self'", "img-src 'self' data:", "script-src 'self'"):
            assert rule in policy.split("; ")
    for asset in {links.STYLE, links.SCRIPT}.union(*SCRIPTS.values()):
        assert not re.search(r"https?://|@import|url\(|fetch\(|XMLHttp|eval\(", (site / asset).read_text())


def test_a_campaign_s_page_has_all_models_by_all_delegates(site):
    page = read_page(site / links.campaign_page(NEWEST.campaign_id))
    for model in MODELS:
        assert model in page.text
        for delegate in ("cpu", "gpu", "litert"):
            assert links.cell_page(_cell(model, delegate).cell_id) in "".join(page.values("href"))
    assert "geometric mean of the ratios" in page.text
    assert "gpu beats litert on 5 of 9 (up to 1.4x), loses on 2 (up to 1.2x), equal on 1" in page.text
    assert "26/27 right" in page.text
    assert "over 8 of 9 models" in page.text, "the int8 model has no number on the gpu"


def test_home_has_every_model_of_all_campaigns_with_its_fastest_delegate(site):
    page = read_page(site / "index.html")
    for model in (*MODELS, "struck", "partial", "slow"):
        assert links.history_page(model) in page.values("href")
    assert OLDER.name in page.text
    assert NEWEST.name in page.text
    hrefs = page.values("href")
    assert links.cell_page(_cell("torchvision_resnet18", "gpu").cell_id) in hrefs
    assert links.cell_page(_cell("torchvision_resnet18", "cpu").cell_id) not in hrefs
    assert "1 of 3" in page.text, "the int8 model has no result on the gpu"


def test_every_campaign_model_and_cell_has_its_page(site):
    for campaign in FARM.campaign_list:
        assert (site / links.campaign_page(campaign.campaign_id)).is_file()
        for model in campaign.models:
            assert (site / links.model_page(campaign.campaign_id, model)).is_file()
    for cell in ALL_CELLS:
        assert (site / links.cell_page(cell.cell_id)).is_file()


def test_cell_without_a_number_says_why_on_every_page_that_shows_it(site):
    shown_on = [
        site / "index.html", site / links.campaign_page(NEWEST.campaign_id),
        site / links.model_page(NEWEST.campaign_id, "torchvision_mobilenet_v2__static_int8"),
    ]  # fmt: skip
    for path in shown_on:
        text = read_page(path).text
        assert "operator 0 QUANTIZE: int8 activations are not supported in fp32" in text, path.name
        assert "unsupported" in text


def test_wrong_output_is_struck_out_and_compared_with_nothing(site):
    raw = (site / links.campaign_page(OLDER.campaign_id)).read_text(encoding="utf-8")
    p50 = f"{_cell('struck', 'gpu').measurement.latency_ms.p50:.3f}"
    assert f"<s>{p50} ms</s>" in raw
    page = _cell_page(site, "struck", "gpu")
    assert "struck out" in page.text
    assert "speed-up over" not in page.text
    assert "over 1 of 10 models" in read_page(site / links.campaign_page(OLDER.campaign_id)).text


def test_a_sustained_pass_is_drawn_on_its_cell_page_and_nowhere_else(site):
    page = _cell_page(site, "torchvision_resnet18", "gpu")
    assert "120 s without a pause: end over start 1.151 (6.10 over 5.30 ms)" in page.text
    assert "3690, 3688, 3275, 3240 MHz" in page.text
    labels = [a.get("aria-label", "") for tag, a in page.elements if tag == "svg"]
    assert len([label for label in labels if label.startswith("The median of each part")]) == 1
    for model, delegate in (("torchvision_resnet18", "cpu"), ("struck", "gpu")):
        assert "without a pause" not in _cell_page(site, model, delegate).text.lower()


def test_a_throughput_is_one_line_of_its_cell_page_and_on_no_other(site):
    page = _cell_page(site, "torchvision_resnet18", "gpu")
    assert "228.8 runs/s, 4 in flight (2 290 runs in 10.01 s)" in page.text
    for model, delegate in (("torchvision_resnet18", "cpu"), ("struck", "gpu")):
        assert "runs/s" not in _cell_page(site, model, delegate).text


def test_a_pipeline_is_a_section_of_its_cell_page_and_of_no_other(site):
    page = _cell_page(site, "torchvision_resnet18", "gpu")
    assert "110 frames/s, 1.375 times 80 frames/s in series (resize 1280x720: 3.50 + 9.00 ms)" in page.text
    for model, delegate in (("torchvision_resnet18", "cpu"), ("struck", "gpu")):
        assert "frames/s" not in _cell_page(site, model, delegate).text


def test_the_model_s_page_says_how_it_suits_its_delegates(site):
    text = read_page(site / links.model_page(OLDER.campaign_id, "partial")).text
    assert "1 operator to change; 25% of the products and 50% of the time on the CPU" in text
    assert "copied <i>alone</i>: 1 x RESHAPE (operators 7); without them 1 launch less; they take" in text


def test_a_profile_is_on_its_cell_page_with_a_flame_graph_beside_it(site):
    cell = _cell("torchvision_resnet18", "gpu")
    page = _cell_page(site, "torchvision_resnet18", "gpu")
    assert "f32_gemm" in page.text
    assert links.flame_page(cell.cell_id) in str(page.elements)
    flame = (site / links.flame_page(cell.cell_id)).read_text(encoding="utf-8")
    assert "7 CONV_2D" in flame
    assert "<i>" not in flame
    assert "f32_gemm" not in _cell_page(site, "torchvision_resnet18", "cpu").text
    assert not (site / links.flame_page(_cell("torchvision_resnet18", "cpu").cell_id)).exists()


def test_fallbacks_with_operator_and_reason_are_in_the_matrix(site):
    text = read_page(site / links.campaign_page(OLDER.campaign_id)).text
    assert "24/42 partial" in text
    assert "TRANSPOSE_CONV version 2 is not lowered" in text
    cell = _cell_page(site, "partial", "gpu").text
    assert cell.count("is not lowered") == 3, "each reason once"
    assert "6 CUSTOM:MaxPoolingWithArgmax2D (0, 3, 6, 9, 12, 15)" in cell


def test_missing_percentiles_carry_the_reason(site):
    missing = _cell("partial", "cpu").measurement.latency_ms.missing
    assert {"p99", "ci95", "p99_ci95"} <= set(missing)
    for name, reason in missing.items():
        assert reason in _cell_page(site, "partial", "cpu").text
        # On the model's page an interval stands below its figure, and below a missing one there is none.
        if name.removesuffix("_ci95") == name or name.removesuffix("_ci95") not in missing:
            assert reason in read_page(site / links.model_page(OLDER.campaign_id, "partial")).text
    assert "no independent reference" in _cell_page(site, "partial", "cpu").text


def test_cell_page_shows_every_sample_every_attempt_and_the_environment(site):
    cell = _cell("torchvision_resnet18", "gpu")
    page = read_page(site / links.cell_page(cell.cell_id))
    for process in FARM.raw[cell.cell_id]:
        for ns in (*process.warmup_ns, *process.invoke_ns):
            assert f"{ns / 1e6:.4f}" in page.text
    settings = dict(cell.measurement.settings)
    for name, floor in json.loads(settings.pop("sample_floors")).items():
        assert f"sample_floors: {name}{floor}" in page.text.replace(" ", "").replace("s:", "s: ")
    for name, value in (cell.environment | cell.facts | settings).items():
        assert name in page.text
        assert value in page.text
    assert "[runner] 3 processes, all clean" in page.text
    assert cell.environment_id in page.text
    crashed = _cell_page(site, "struck", "cpu").text
    assert crashed.count("SIGSEGV") >= 4
    assert "⟨U+001B⟩[31mred" in crashed, "a terminal code in a log is shown, not hidden"


def test_reused_cell_leads_to_the_original_which_alone_holds_the_raw_numbers(site):
    original, reused = _cell("face_landmark", "litert"), _cell("partial", "litert")
    page = read_page(site / links.cell_page(reused.cell_id))
    assert {
        f"../{links.cell_page(original.cell_id)}",
        f"../{links.cell_page(original.cell_id)}#numbers",
        f"../{links.cell_data(original.cell_id)}",
    } <= set(page.values("href"))
    assert page.attributes("svg"), "the drawings stay"
    assert not (site / links.cell_data(reused.cell_id)).exists()


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=lambda n: n[:12])
def test_hostile_name_is_text_and_never_markup_or_path(site, name):
    path = site / links.model_page(OLDER.campaign_id, name)
    page = read_page(path)
    assert not page.attributes("img")
    assert len(page.attributes("script")) == 1
    shown = name.replace("\u202e", "⟨U+202E⟩")
    assert shown in page.text
    for file in site.rglob("*"):
        assert re.fullmatch(r"[0-9a-z-]+(\.html|\.json|\.csv|\.css|\.js|\.xml)?", file.name)
    everything = path.read_text(encoding="utf-8")
    assert "\u202e" not in everything
    assert html.escape(name) in everything or "\u202e" in name or "'" in name or '"' in name


def test_no_page_or_table_holds_a_control_character(site):
    for path in (file for file in site.rglob("*") if file.suffix in (".html", ".csv")):
        text = path.read_bytes().decode().replace("\r\n", "\n")
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", text), (
            path
        )


def test_campaign_json_is_the_results_format(site):
    for campaign in FARM.campaign_list:
        loaded = json.loads((site / links.campaign_data(campaign.campaign_id, "json")).read_text())
        assert loaded == json.loads(
            json.dumps([result_json(c) for c in FARM.cell_lists[campaign.campaign_id]])
        )


def test_campaign_csv_agrees_with_the_json_and_holds_no_formula(site):
    text = (site / links.campaign_data(OLDER.campaign_id, "csv")).read_bytes().decode()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    cells = FARM.cell_lists[OLDER.campaign_id]
    assert len(rows) == len(cells)
    for row, cell in zip(rows, cells, strict=True):
        assert row["model"].removeprefix("'") == visible(cell.model)
        expected = result_json(cell)["latency_ms"]
        p50 = expected and expected["p50"]
        assert row["latency_ms.p50"] == ("" if p50 is None else repr(p50))
        assert not [v for v in row.values() if v[:1] in set("=+@\t\r")]
    assert any(row["model"] == "'=HYPERLINK(1)" for row in rows)


def test_cell_json_holds_every_raw_sample(site):
    cell = _cell("face_landmark", "gpu")
    loaded = json.loads((site / links.cell_data(cell.cell_id)).read_text())
    assert loaded["result"] == json.loads(json.dumps(result_json(cell)))
    assert [p["invoke_ns"] for p in loaded["processes"]] == [
        list(p.invoke_ns) for p in FARM.raw[cell.cell_id]
    ]
    assert loaded["environment"] == cell.environment


def test_method_page_states_the_floors_and_tolerances_in_force(site):
    text = read_page(site / links.METHOD).text
    for name, floor in FLOORS.items():
        assert f"{name} {floor}" in text or f"{name}{floor}" in text
    assert f"{rules.FP32_TOLERANCE:.0e}".replace("e-0", "e-") in text
    assert f"{rules.REDUCED_TOLERANCE:.0e}".replace("e-0", "e-") in text
    assert f"≥ {bounds.MIN_CENTRED_COSINE}" in text
    assert f"≤ {bounds.FACTORS['rms']} · ‖x" in text
    assert MIN_UNITS == 3
    assert "below three there is no interval" in text


def test_no_page_prints_a_python_value(site):
    for path in _pages(site):
        text = read_page(path).text
        assert not re.search(r"\bNone\b(?! recorded|:|\.)|\bnan\b|Undefined|<bound|object at 0x", text), (
            path.name
        )


def test_empty_farm_says_what_to_do(tmp_path):
    page = read_page(build_site(HandMadeFarm(), tmp_path / "site"))
    assert "Nothing measured yet" in page.text
    assert "farm submit" in page.text


def test_a_cell_that_was_reported_and_not_measured_shows_dashes_and_reasons(tmp_path):
    cell = _cell("face_landmark", "gpu")
    nothing = dict.fromkeys(("init", "init_warm", "first", "p50", "p90", "p99", "mean", "ci95"))
    why = dict.fromkeys(nothing, "not measured: not_delegated")
    reported = cell.measurement.model_copy(
        update={"latency_ms": Latency(**nothing, missing=why), "samples": 0, "memory_peak_bytes": 0}
    )
    farm = HandMadeFarm((NEWEST,), {NEWEST.campaign_id: (replace(cell, measurement=reported),)})
    site = build_site(farm, tmp_path / "site").parent
    for path in (links.cell_page(cell.cell_id), links.model_page(NEWEST.campaign_id, cell.model)):
        text = read_page(site / path).text
        assert "not measured: not_delegated" in text
        assert "nothing was run" in text
    for path in _pages(site):
        if path.name != links.METHOD:
            assert ">None<" not in path.read_text(encoding="utf-8"), path.name


def test_unreadable_samples_cost_one_drawing_not_the_site(tmp_path):
    class DamagedFarm(HandMadeFarm):
        def samples(self, cell):
            raise FarmError("sha256/ab/cd: 12 bytes are missing")

    (cell,) = [
        c for c in FARM.cell_lists[NEWEST.campaign_id] if (c.model, c.delegate) == ("face_landmark", "gpu")
    ]
    farm = DamagedFarm((NEWEST,), {NEWEST.campaign_id: (cell,)})
    site = build_site(farm, tmp_path / "site").parent
    page = read_page(site / links.cell_page(cell.cell_id))
    assert "12 bytes are missing" in page.text
    assert "166/166" in page.text
    build_site(HandMadeFarm(farm.campaign_list, farm.cell_lists), site)
    healed = (site / links.cell_page(cell.cell_id)).read_text(encoding="utf-8")
    assert "12 bytes are missing" not in healed, "the next build reads them again"


def test_newest_campaign_is_found_whatever_the_order(tmp_path):
    for order in ((NEWEST, OLDER), (OLDER, NEWEST)):
        site = build_site(HandMadeFarm(order, FARM.cell_lists, {}), tmp_path / "site")
        assert read_page.__wrapped__(site).attributes("h1")
        names = [
            a["href"]
            for tag, a in read_page.__wrapped__(site).elements
            if tag == "a" and "campaigns/" in a["href"]
        ]
        assert names == [links.campaign_page(one.campaign_id) for one in (NEWEST, OLDER)]


@pytest.mark.slow
def test_build_is_a_function_of_its_input(tmp_path):
    first = build_site(FARM, tmp_path / "a").parent
    second = build_site(FARM, tmp_path / "b").parent
    files = sorted(p.relative_to(first) for p in first.rglob("*") if p.is_file())
    assert files == sorted(p.relative_to(second) for p in second.rglob("*") if p.is_file())
    assert all((first / f).read_bytes() == (second / f).read_bytes() for f in files)


@pytest.mark.parametrize("package", ["wire", "common", "model"])
def test_a_part_is_another_one_where_what_pages_import_is(tmp_path, monkeypatch, package):
    before = parts._program.__wrapped__()
    monkeypatch.setattr(getattr(parts, package), "__file__", str(tmp_path / "__init__.py"))
    assert parts._program.__wrapped__() != before


def content(site: Path) -> dict[str, bytes]:
    return {str(p.relative_to(site)): p.read_bytes() for p in site.rglob("*") if p.is_file()}


def test_a_build_that_waited_for_another_one_reads_the_farm_and_the_newer_site(tmp_path, monkeypatch):
    lists = dict(FARM.cell_lists)
    farm = HandMadeFarm((NEWEST,), lists, {})
    site = build_site(farm, tmp_path / "site").parent
    replaced_folder = build.replaced_folder

    def after_another_build(target, marker):
        monkeypatch.undo()
        first, *others = lists[NEWEST.campaign_id]
        lists[NEWEST.campaign_id] = (replace(first, level="standard"), *others)
        build_site(farm, target)
        return replaced_folder(target, marker)

    monkeypatch.setattr(build, "replaced_folder", after_another_build)
    build_site(farm, site)
    assert content(site) == content(build_site(farm, tmp_path / "whole").parent)


def test_a_second_build_takes_over_what_is_unchanged_and_has_the_same_bytes(tmp_path):
    # A cell of the older campaign shows a result of the newer one, so that its part would change.
    site = build_site(HandMadeFarm((NEWEST,), FARM.cell_lists, {}), tmp_path / "site").parent
    kept = site / links.cell_page(_cell("face_landmark", "gpu").cell_id)
    before = kept.stat().st_ino
    both = HandMadeFarm(FARM.campaign_list, FARM.cell_lists, {})
    build_site(both, site)
    assert kept.stat().st_ino == before, "the same file, not written again"
    assert content(site) == content(build_site(both, tmp_path / "whole").parent)
    first, *others = FARM.cell_lists[NEWEST.campaign_id]
    changed = {**FARM.cell_lists, NEWEST.campaign_id: (replace(first, level="standard"), *others)}
    build_site(replace(both, cell_lists=changed), site)
    assert kept.stat().st_ino != before
    assert content(site) == content(build_site(replace(both, cell_lists=changed), tmp_path / "other").parent)
