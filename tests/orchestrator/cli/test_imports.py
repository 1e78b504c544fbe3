"""`farm import`: shown and flagged in every form, never paired, reused or judged."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from pathlib import Path

import pytest

from tests.orchestrator.cli.conftest import Shell
from tests.orchestrator.results.test_imports import AI_HUB, LOG, OLD, TABLE, TOP_K

FILES = {"bench.log": LOG, "profile.json": json.dumps(AI_HUB)}


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    shell = Shell(tmp_path_factory.mktemp("imported"))
    for name, text in FILES.items():
        shell.write(name, text)
    ran = shell.farm("import", *FILES, "--device", "Pixel 8", "--campaign", "phones", "--json")
    assert ran.code == 0, ran.err
    assert ran.json()["cells"] == 2
    return shell


def test_results_of_other_tools_are_flagged_in_table_json_and_csv(imported: Shell) -> None:
    table = imported.farm("results", "phones").out
    assert "° measured by another tool, not compared" in table
    assert "Pixel-8" in table.splitlines()[0]
    every = imported.farm("results", "phones", "-v").out
    assert "void: imported: measured by benchmark_model" in " ".join(every.split())
    assert "benchmark_model-gpu@imported:Pixel-8" in " ".join(every.split())
    rows = imported.farm("results", "phones", "--format", "json").json()
    for row, (name, text) in zip(rows, FILES.items(), strict=True):
        assert row["imported"]["file"] == name
        assert row["imported"]["sha256"] == hashlib.sha256(text.encode()).hexdigest()
        assert row["flags"][0].startswith("imported: ")
        assert (row["ratio"], row["quality"], row["reused_from"]) == (None, None, None)
        assert row["grade"] == "void"
        assert (row["accuracy"]["verdict"], row["device_name"]) == (None, "Pixel-8")
    assert [row["model"] for row in rows] == ["mobilenet_v2.tflite", "profile"]
    lines = list(csv.DictReader(io.StringIO(imported.farm("results", "phones", "--format", "csv").out)))
    assert [line["imported.tool"] for line in lines] == ["benchmark_model", "ai-hub"]


def test_no_verdict_is_given_over_them_and_they_cannot_be_run_again(imported: Shell) -> None:
    other = imported.write("slow.log", LOG.replace("median=5020", "median=50200"))
    assert imported.farm("import", other, "--device", "Pixel 8", "--campaign", "slow").code == 0
    found = imported.farm("compare", "phones", "slow", "--json", "--fail-on", "regression").json()
    (change,) = [change for change in found["changes"] if change["ratio"] is not None]
    assert change["verdict"] == "void"
    assert "imported: measured by benchmark_model, not by this farm" in change["why"]
    judged = imported.farm("results", "phones", "--budget", "p50<=0.001ms", "--only", "mobilenet*")
    assert "imported: measured by benchmark_model" in judged.err
    assert judged.code == 5, "a figure of another tool neither keeps a limit nor exceeds it"
    assert "was imported from bench.log" in imported.farm("repro", "mobilenet phones").err
    assert "imported" not in imported.farm("devices").out
    assert imported.farm("retry", "phones").out == "phones: no cell to retry\n"


def test_a_mean_is_shown_as_a_mean_and_a_row_without_a_time_as_its_status(imported: Shell) -> None:
    files = {"old.log": OLD, "compat.md": TABLE, "ranks.txt": TOP_K}
    for name, text in files.items():
        imported.write(name, text)
    assert imported.farm("import", *files, "--campaign", "means").code == 0
    table = imported.farm("results", "means").out
    assert "mean 250°" in table
    assert "no p50" not in table
    assert "Nothing was measured" not in table
    assert "failed; imported: table, file compat.md" in table
    every = imported.farm("results", "means", "-v").out
    assert "mean 250 ms" in every
    shown = imported.farm("show", "ranks").out
    assert "mean        76.6 ms" in shown
    assert "told        top1 0.733333, top10 0.96" in shown
    assert "whole model" not in shown
    rows = {row["model"]: row for row in imported.farm("results", "means", "--json").json()}
    assert (rows["alexnet"]["latency_ms"]["mean"], rows["alexnet"]["latency_ms"]["p50"]) == (12.3, None)
    assert (rows["odd"]["status"], rows["odd"]["imported"]["file"]) == ("failed", "compat.md")


def test_hostile_and_endless_names_are_one_short_line_each_in_a_pipe_too(imported: Shell) -> None:
    for number in (1, 2):
        applied = f"Explicitly applied \x1b[31mx\x1b[0m{'y' * 5000}{number}"
        imported.write(f"odd{number}.log", LOG.replace("Explicitly applied GPU", applied))
    assert imported.farm("import", "odd1.log", "odd2.log", "--campaign", "odd").code == 0
    for verbose in ([], ["-v"]):
        shown = imported.farm("results", "odd", *verbose).out
        assert "\x1b" not in shown
        assert max(map(len, shown.splitlines())) < 1000
    rows = imported.farm("results", "odd", "--json").json()
    assert len({row["delegate"] for row in rows}) == 2
    assert all(len(row["delegate"]) <= 100 for row in rows)


def test_a_long_name_that_several_runs_share_stays_within_its_bound(imported: Shell) -> None:
    imported.write("twice.log", LOG + LOG)
    asked = ("import", "twice.log", "--delegate", "y" * 100, "--campaign", "twice")
    assert imported.farm(*asked).code == 0
    names = {row["delegate"] for row in imported.farm("results", "twice", "--json").json()}
    assert len(names) == 2
    assert {len(name) for name in names} == {100}


def test_the_same_files_are_imported_once_and_a_wrong_one_imports_nothing(imported: Shell) -> None:
    again = imported.farm("import", *FILES, "--device", "Pixel 8", "--campaign", "phones", "--json")
    assert again.json()["new"] is False
    imported.write("wrong.log", LOG[:300])
    ran = imported.farm("import", "bench.log", "wrong.log", "--campaign", "both")
    assert ran.code == 2
    assert "wrong.log: " in ran.err
    assert "ends with 'Inference timings in us" in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert imported.farm("results", "both").code == 2


def test_the_site_shows_them_with_their_flag(imported: Shell, tmp_path: Path) -> None:
    assert imported.farm("site", "build", "--out", tmp_path / "site").code == 0
    pages = [page.read_text() for page in (tmp_path / "site").rglob("*.html")]
    assert any("imported: measured by" in page and "mobilenet_v2.tflite" in page for page in pages)
