"""Choices of the home page besides the newest medians: figures of each version, as its cells have them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from orchestrator.site import choices, links
from orchestrator.site.archive import Archive
from orchestrator.site.build import build_site
from orchestrator.site.series import series_of
from orchestrator.site.shards import unpacked
from tests.orchestrator.site.reading import read_page
from tests.orchestrator.site.records import HandMadeFarm
from tests.orchestrator.site.test_over_time import MODEL, NIGHTS, nightly_farm

FARM = nightly_farm()
FIGURES = tuple(name for name, _ in choices.figures())


def columns(farm: HandMadeFarm) -> dict[str, list[list]]:
    own = series_of(Archive(farm), MODEL)
    return {version: json.loads(written) for version, _, written in choices.choices_of(Archive(farm), own)}


def test_a_version_has_the_figures_of_the_cells_that_were_measured_for_it() -> None:
    found = columns(FARM)
    assert list(found) == ["", *(f"c{night:02}" for night in reversed(range(NIGHTS)))]
    for night in (0, NIGHTS - 1):
        cells = {cell.delegate: cell for cell in FARM.cell_lists[f"night{night:02}"] if cell.status == "done"}
        assert {column[0] for column in found[f"c{night:02}"]} == set(cells), "a failed cell has no figure"
        for delegate, device, at, outputs, values, over in found[f"c{night:02}"]:
            cell = cells[delegate]
            m = cell.measurement
            assert (device, at) == (cell.device, f"{cell.finished_at:%Y-%m-%d}")
            assert outputs[1] == "pass"
            named = dict(zip(FIGURES, values, strict=False))
            for name in ("p50", "p99", "first", "init"):
                known = getattr(m.latency_ms, name)
                assert named[name] == (None if known is None else pytest.approx(known, rel=1e-4))
            assert named["memory"] == pytest.approx(m.memory_peak_bytes / 2**20, rel=1e-4)
            assert tuple(values[len(FIGURES) :]) == pytest.approx(m.latency_ms.ci95, rel=1e-4)
            if delegate == "litert":
                assert over == "baseline"
            else:
                assert (over[0], over[1]) == ("litert", pytest.approx(m.ratio.median, rel=1e-4))


def test_only_the_newest_versions_can_be_chosen(monkeypatch) -> None:
    monkeypatch.setattr(choices, "VERSIONS", 2)
    assert list(columns(FARM)) == ["", "c13", "c12"]


def test_a_figure_that_is_missing_stays_missing_and_a_void_result_is_none() -> None:
    (record,) = [one for one in FARM.campaign_list if one.campaign_id == "night03"]
    base, own = FARM.cell_lists["night03"]
    latency = own.measurement.latency_ms.model_copy(update={"p99": None, "init": None})
    quality = base.measurement.quality.model_copy(update={"void": ("swapped while timing",)})
    cells = (
        replace(base, measurement=base.measurement.model_copy(update={"quality": quality})),
        replace(own, measurement=own.measurement.model_copy(update={"latency_ms": latency})),
    )
    found = columns(HandMadeFarm((record,), {"night03": cells}))
    for version in ("", "c03"):
        ((delegate, _, _, _, values, over),) = found[version]
        named = dict(zip(FIGURES, values, strict=False))
        assert (delegate, named["p99"], named["init"], over) == ("gpu", None, None, None)
        assert named["p50"] > 0


def test_every_line_has_its_place_in_the_script_of_every_version(tmp_path) -> None:
    index = build_site(FARM, tmp_path / "site")
    page = read_page(index)
    offered = json.loads(page.values("data-choices")[0])
    assert [name for name, _ in offered["versions"]] == [f"c{night:02}" for night in reversed(range(NIGHTS))]
    assert offered["baselines"] == ["cpu", "gpu", "litert"]
    lines = page.values("data-columns")
    for version in ("", "c03"):
        rows = unpacked((index.parent / links.choice(version)).read_text())
        assert len(rows) == len(lines)
        assert all(len(row) <= int(most) for row, most in zip(rows, lines, strict=True))
    assert sum(map(bool, unpacked((index.parent / links.choice("c03")).read_text()))) == 1
