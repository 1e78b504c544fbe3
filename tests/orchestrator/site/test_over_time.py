"""Pages over all campaigns: newest results, changes, comparisons, devices, causes."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from shutil import copytree
from xml.etree import ElementTree

import pytest

from orchestrator.errors import UsageError
from orchestrator.results.change_points import changes_of
from orchestrator.results.device_noise import DeviceNoise
from orchestrator.results.records import ManifestRecord, ModelOrigin
from orchestrator.site import links
from orchestrator.site.anonymous import AnonymousSource
from orchestrator.site.archive import Archive
from orchestrator.site.build import build_site
from orchestrator.site.check import faults_of
from orchestrator.site.notes import Notes
from orchestrator.site.series import series_of, shifts_of
from orchestrator.site.summaries import judged_budgets
from tests.orchestrator.site.reading import read_page
from tests.orchestrator.site.records import (
    HOST,
    NIGHT,
    POCL,
    HandMadeFarm,
    attempt,
    campaign,
    cell,
    demo_farm,
    measurement,
    processes,
    ratio,
    reason,
)

NIGHTS = 14
STEP = 8
"""The night from which the GPU is 6 % slower."""

CHANGED = 5
"""The night from which the host has another kernel."""

MODEL = "face_landmark"
RAW = processes("nightly", 3.0, samples=40)


@cache
def nightly_farm() -> HandMadeFarm:
    """Build the demo's farm, and after it a campaign of one model for each of some nights."""
    farm = demo_farm()
    rng = random.Random(3)
    campaigns, cells = list(farm.campaign_list), dict(farm.cell_lists)
    for night in range(NIGHTS):
        at = NIGHT + timedelta(days=1 + night)
        slower = 1.06 if night >= STEP else 1.0
        made = measurement(RAW, "gpu", 42).model_copy(
            update={"ratio": ratio(1.2 / slower * math.exp(rng.gauss(0, 0.004)))}
        )
        base = cell("nightly", MODEL, "litert", HOST, measurement=measurement(RAW, "litert", 42))
        own = cell("nightly", MODEL, "gpu", POCL, measurement=made)
        if night == NIGHTS - 1:
            own = replace(
                own, status="failed", measurement=None, reason=reason("crash", "SIGSEGV"), environment={}
            )
        record = replace(
            campaign("nightly", at, (MODEL,), ("litert", "gpu"), "litert"),
            campaign_id=f"night{night:02}",
            labels={"commit": f"c{night:02}"},
        )
        kernel = {"kernel": "6.6.0" if night >= CHANGED else "6.1.0"}
        noise = DeviceNoise(0.004, 0.012, 8, "litert", "2026-11-20T02:00:00+00:00")
        cells[record.campaign_id] = tuple(
            replace(
                one,
                cell_id=f"{one.delegate}-{night:02}",
                campaign_id=record.campaign_id,
                finished_at=at,
                noise=noise,
                environment=one.environment | kernel
                if one.environment and one.delegate == "litert"
                else one.environment,
            )
            for one in (base, own)
        )
        campaigns.append(record)
    return HandMadeFarm(tuple(campaigns), cells)


FARM = nightly_farm()


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    return build_site(FARM, tmp_path_factory.mktemp("nights") / "site").parent


def test_a_nightly_run_of_one_model_hides_none_of_the_others(site):
    page = read_page(site / "index.html")
    lines = [attributes for tag, attributes in page.elements if tag == "tr" and "data-level" in attributes]
    assert len(lines) == 19
    assert "newest result 2026-12-05" in page.text
    assert links.history_page("torchvision_resnet18") in page.values("href")
    assert "2026-11-21 13 d" in page.text, "the age of the demo's results"
    assert "results in 30 days" in str(page.attributes("svg"))


def test_a_step_is_told_at_its_commit_and_in_the_feed(site):
    (series,) = [
        one for one in series_of(Archive(FARM), MODEL) if one.key[2] == "gpu" and len(one.points) > 2
    ]
    (shift,) = shifts_of(series, Notes())
    assert (shift.first.version, shift.state, shift.over) == ("c08", "confirmed", "paired ratio")
    assert shift.step == pytest.approx(1.06, abs=0.01)
    trends = read_page(site / links.TRENDS)
    assert "c08" in trends.text
    assert "▼ slower" in trends.text
    feed = ElementTree.parse(site / links.FEED).getroot()
    atom = "{http://www.w3.org/2005/Atom}"
    (entry,) = feed.findall(f"{atom}entry")
    assert "at c08" in entry.findtext(f"{atom}title", "")
    target, _, anchor = entry.find(f"{atom}link").attrib["href"].partition("#")
    assert anchor in read_page(site / target).values("id")


def test_an_accepted_change_is_no_news_and_its_level_is_the_one_to_keep(tmp_path):
    file = tmp_path / "trends.toml"
    file.write_text(f'[[accepted]]\nmodel = "{MODEL}"\nat = "c08"\nnote = "exact rounding, on purpose"\n')
    site = build_site(FARM, tmp_path / "site", Notes.read(file)).parent
    assert "accepted exact rounding, on purpose" in read_page(site / links.TRENDS).text
    assert "Slower" not in read_page(site / links.INDEX).text
    assert ElementTree.parse(site / links.FEED).getroot().findall("{*}entry") == []
    logs = [0.0, 0.001] * 10 + [0.06, 0.061] * 10 + [0.08, 0.081] * 10
    assert [one.since_best > 0.07 for one in changes_of(logs)] == [False, True]
    assert [one.since_best > 0.07 for one in changes_of(logs, {20})] == [False, False]


def test_a_file_of_notes_with_a_mistake_is_refused_in_one_line(tmp_path):
    file = tmp_path / "trends.toml"
    file.write_text('[[accepted]]\nmodel = "a"\nversion = "1"\n')
    with pytest.raises(UsageError, match="expected \\[\\[accepted\\]\\] with model, at, note"):
        Notes.read(file)


def test_a_series_is_cut_where_conditions_change_and_says_by_what(site):
    page = read_page(site / links.history_page(MODEL))
    assert "conditions: kernel 6.1.0 → 6.6.0" in page.text
    assert [a for a in page.attributes("line") if a.get("class") == "cut"]


def test_a_failure_since_the_newest_result_is_told_and_has_its_cause(site):
    page = read_page(site / links.history_page(MODEL))
    assert "The newest attempt, of 2026-12-05 02:30 UTC, gave no result" in page.text
    causes = read_page(site / links.FAILURES).text
    assert "SIGSEGV" in causes
    assert "operator 0 QUANTIZE: int8 activations are not supported in fp32" in causes
    assert "ran past 900 s" in causes


def test_releases_that_an_option_names_are_one_series_with_the_release_as_its_axis():
    releases = ("2.1.0", "2.2.0", "2.3.0")
    campaigns, cells = [], {}
    for night, release in enumerate(releases):
        at = NIGHT + timedelta(days=night)
        one = replace(campaign("releases", at, (MODEL,), ("litert",), None), campaign_id=f"release{night}")
        made = cell("releases", MODEL, "litert", HOST, measurement=measurement(RAW, "litert", 42))
        options = made.delegate_options | {"version": release}
        made = replace(made, cell_id=f"litert-{night}", campaign_id=one.campaign_id, delegate_options=options)
        campaigns.append(one)
        cells[one.campaign_id] = (replace(made, finished_at=at),)
    (series,) = series_of(Archive(HandMadeFarm(tuple(campaigns), cells)), MODEL)
    assert tuple(point.version for point in series.points) == releases
    assert "version" not in series.key[3]


def test_a_campaign_is_set_against_the_one_before_it(site):
    page = read_page(site / links.comparison_page("night13"))
    assert "1 broken" in page.text
    assert "gpu @ bench-01/opencl-0" in page.text
    assert f"../{links.comparison_page('night13')}" in read_page(
        site / links.campaign_page("night13")
    ).values("href")
    assert not (site / links.comparison_page("night00")).exists(), "the first of its name"


def test_a_device_s_page_has_its_noise_and_its_environments(site):
    page = read_page(site / links.device_page(HOST))
    assert "Equal things differ here by 0.4 % (sessions 1.2 %): 8 sessions of litert" in page.text
    assert "measured 2026-11-20 02:00 UTC" in page.text
    assert "kernel (6.1.0 → 6.6.0)" in page.text


def test_a_checked_site_has_no_fault_and_each_damage_is_one(site, tmp_path):
    assert list(faults_of(site)) == []
    copy = tmp_path / "site"
    copytree(site, copy)
    (copy / links.cell_page("gpu-03")).unlink()
    page = copy / links.METHOD
    loaded = '<script src="https://example.com/x.js"></script><a href="#nowhere">x</a>'
    page.write_text(page.read_text().replace("</main>", f"{loaded}</main>"))
    found = list(faults_of(copy))
    assert f"{links.cell_page('gpu-03')} is missing" in found
    assert "method.html: https://example.com/x.js is fetched from elsewhere" in found
    assert "method.html: #nowhere leads to no place of that page" in found


def test_an_anonymous_site_names_no_user_no_host_and_no_folder(tmp_path):
    made = cell("nightly", MODEL, "litert", "rack-7.host-cpu", measurement=measurement(RAW, "litert", 42))
    log = "open /home/alice/models/face.tflite: rack-7 and lab-box.example are busy"
    made = replace(
        made,
        status="failed",
        reason=reason("crash", log),
        facts={"hostname": "lab-box.example"},
        device="rack-7.host-cpu",
    )
    record = replace(campaign("nightly", NIGHT, (MODEL,), ("litert",), None), submitted_by="alice@build-3")
    farm = HandMadeFarm((record,), {record.campaign_id: (made,)})
    site = build_site(AnonymousSource(farm), tmp_path / "site").parent
    everything = "\n".join(p.read_text(encoding="utf-8") for p in site.rglob("*") if p.is_file())
    for word in ("alice", "rack-7", "lab-box", "build-3", "/home"):
        assert word not in everything, word
    assert "user-1@host-1" in everything
    assert "host-3.host-cpu" in everything
    assert "open …/face.tflite: host-3 and host-2 are busy" in everything


def test_the_origin_of_a_model_is_found_by_the_name_that_an_anonymous_site_gives_it():
    made = cell("nightly", "net of rack-7", "litert", "rack-7.host-cpu")
    record = campaign("nightly", NIGHT, (made.model,), ("litert",), None)
    of, origin = record.campaign_id, ModelOrigin("zoo:net", None)
    manifest = ManifestRecord(of, "nightly", "models.yaml", "", {}, {made.model: origin})
    source = AnonymousSource(HandMadeFarm((record,), {of: (made,)}, manifests={of: manifest}))
    (hidden,) = source.cells(of)
    assert "rack-7" not in hidden.model
    assert source.manifest(of).origins == {hidden.model: origin}


def test_a_public_part_is_another_one_where_a_cell_that_waits_was_tried_again():
    waiting = replace(cell("nightly", MODEL, "litert", "cpu"), status="queued", measurement=None)
    record = campaign("nightly", NIGHT, (MODEL,), ("litert",), None)
    found = set()
    for tried in ((), (attempt(waiting, 1, reason("interrupted", "the agent died")),)):
        farm = HandMadeFarm((record,), {record.campaign_id: (replace(waiting, attempts=tried),)})
        found |= {group.content for group in AnonymousSource(farm).groups()}
    assert len(found) == 2


def test_budgets_of_the_newest_campaign_are_judged_on_the_home_page(tmp_path):
    document = (
        "version: 1\ncampaign: nightly\nmodels: [{id: m, source: m.tflite}]\n"
        "delegates: {cpu: {kind: cpu}}\nbudgets: [p50<=1ms]\n"
    )
    manifest = ManifestRecord("night12", "nightly", "models.yaml", document, {}, {})
    farm = HandMadeFarm(FARM.campaign_list[:-1], FARM.cell_lists, manifests={"night12": manifest})
    judged = judged_budgets(farm, Archive(farm), FARM.campaign_list[-2])
    assert [one.outcome for one in judged] == ["exceeded", "exceeded"]
    page = read_page(build_site(farm, tmp_path / "site"))
    assert "Budgets 0 met; face_landmark on litert: p50<=1ms exceeded" in page.text
