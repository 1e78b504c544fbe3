"""`farm submit` and the verbs that read what it measured: real models, real runners, a real database."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from orchestrator.config.home import FarmHome
from orchestrator.scheduling.lock import lock_holder
from tests.orchestrator.cli.conftest import Shell
from tests.orchestrator.cli.models import unary_model
from tests.services.forks import Fork

CAMPAIGN = """\
version: 1
campaign: small
level: quick
defaults:
  measure: {warmup: {runs: 1, min_seconds: 0}, blocks: 1, rounds: 3, slice: {seconds: 0.01}}
models:
  - {id: good, source: good.tflite, measure: {profile: kernels}}
  - {id: "<b>[red]café", source: wide.tflite}
delegates:
  cpu: {kind: cpu, threads: 1}
  litert: {kind: litert, threads: 1}
baseline: {delegate: litert}
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Return a farm with one finished campaign. The tests that use it only look."""
    shell = Shell(tmp_path_factory.mktemp("measured"))
    shell.write("good.tflite", unary_model())
    shell.write("wide.tflite", unary_model(size=8192))
    shell.write("models.yaml", CAMPAIGN)
    ran = shell.farm("submit", "models.yaml")
    assert ran.code == 0, ran.err
    assert "4 cells: 4 to run" in ran.err
    assert "[4/4]" in ran.err
    shell.write("submitted.txt", ran.out)
    return shell


def test_a_submit_ends_with_the_answer(measured: Shell) -> None:
    lines = (measured.folder / "submitted.txt").read_text().splitlines()
    assert lines[0].startswith("small  2 models · ")
    assert lines[0].endswith("4/4 right")
    heading = lines[lines.index("") + 1]
    assert heading.split()[0] == "model"
    assert {"cpu", "litert"} <= set(heading.split())
    assert any(line.startswith("good ") and " ms " in line for line in lines)
    assert any(line.startswith("<b>[red]café ") for line in lines)
    assert max(map(len, lines)) <= 120


@pytest.mark.slow
def test_a_second_submit_reuses_every_cell_and_says_so(measured: Shell) -> None:
    plan = measured.farm("submit", "models.yaml", "--dry-run", "--json").json()
    assert [cell["action"] for cell in plan] == ["reuse"] * 4
    assert all(cell["reused_from"] for cell in plan)
    ran = measured.farm("submit", "models.yaml")
    assert ran.code == 0
    assert "4 cells: 4 reused" in ran.err
    assert "4 reused" in ran.out
    every = measured.farm("submit", "models.yaml", "--verbose").out.splitlines()
    assert every[0].split() == ["model", "cpu@host-cpu", "litert@host-cpu"]
    assert every[-1] == "4 cells: 4 done; 4 reused"


def test_two_runs_are_compared_and_a_reused_result_is_no_evidence(measured: Shell) -> None:
    (campaign, *_) = measured.farm("status", "--json").json()["campaigns"]
    ref = campaign["campaign_id"]
    ran = measured.farm("compare", ref, ref, "--all", "--fail-on", "regression")
    assert ran.code == 0, ran.err
    assert "4 cells: 4 same" in ran.out
    assert "farm submit --force measures again" in " ".join(ran.out.split())
    found = measured.farm("compare", ref, ref, "--json").json()
    assert found["paired"] is False
    assert {tuple(change["key"][:2]) for change in found["changes"]} >= {("good", "cpu"), ("good", "litert")}
    assert all(change["ratio"]["median"] == 1.0 for change in found["changes"])
    markdown = measured.farm("compare", ref, ref, "--all", "--format", "md").out
    assert markdown.startswith("from small of ")
    assert " | speed | verdict | why |" in markdown


@pytest.mark.slow
def test_a_budget_fails_a_build_and_names_the_cell(measured: Shell) -> None:
    junit = measured.folder / "report.xml"
    met = measured.farm(
        "results", "--budget", "init<=100s", "--budget", "memory<=100GB", "--junit", str(junit)
    )
    assert met.code == 0, met.err
    assert junit.read_text().count("<testcase") == 12, "four cells, each with two budgets"
    asked = ("results", "--budget", "p50<=100s")
    assert [measured.farm(*asked, *then).code for then in ((), ("--undecided", "warn"))] == [5, 0]
    over = measured.farm("results", "--budget", "memory<=1B")
    assert over.code == 3
    assert "budget memory<=1B exceeded: good cpu@host-cpu: " in over.err
    assert "4 budgets: 4 exceeded" in over.err
    wrong = measured.farm("submit", "models.yaml", "--budget", "p50<5ms")
    assert (wrong.code, wrong.out) == (2, "")
    measured.write("limited.yaml", CAMPAIGN + "budgets: ['memory<=1B']\n")
    ran = measured.farm("submit", "limited.yaml")
    assert ran.code == 3, ran.err
    assert "4 budgets: 4 exceeded" in ran.err


def test_two_delegates_of_one_run_are_compared(measured: Shell) -> None:
    (campaign, *_) = measured.farm("status", "--json").json()["campaigns"]
    asked = ("compare", campaign["campaign_id"])
    found = measured.farm(*asked, "cpu,litert", "--by", "delegate", "--json").json()
    assert [change["key"][1:] for change in found["changes"]] == [["host-cpu", "quick"]] * 2
    for values, words in (("cpu", "takes two values with a comma"), ("cpu,gpu", "no delegate of this")):
        refused = measured.farm(*asked, values, "--by", "delegate")
        assert (refused.code, refused.out) == (2, "")
        assert words in refused.err


def test_a_dry_run_lists_every_cell_and_names_what_changed(measured: Shell) -> None:
    measured.write("changed.yaml", CAMPAIGN.replace("threads: 1}\n  litert", "threads: 2}\n  litert"))
    ran = measured.farm("submit", "changed.yaml", "--dry-run")
    assert ran.code == 0
    rows = [line.split() for line in ran.out.splitlines()]
    assert rows[0] == ["model", "delegate", "device", "action", "eta", "why"]
    assert [row[3] for row in rows[1:5]] == ["run", "reuse", "run", "reuse"]
    assert "threads 1 → 2" in ran.out
    plan = measured.farm("submit", "changed.yaml", "--dry-run", "--json").json()
    assert plan[0]["changed"] == [{"field": "threads", "before": "1", "after": "2"}]
    forced = measured.farm("submit", "models.yaml", "--dry-run", "--json", "--force").json()
    assert {cell["action"] for cell in forced} == {"run"}


@pytest.mark.slow
def test_a_dry_run_explains_how_many_operators_a_delegate_takes(measured: Shell) -> None:
    text = CAMPAIGN.replace("  litert: {", "  gpu: {kind: gpu}\n  whole: {kind: litert}\n  litert: {")
    measured.write("explained.yaml", text)
    asked = ("submit", "explained.yaml", "--dry-run", "--explain", "--model-id", "good")
    ran = measured.farm(*asked)
    assert ran.code == 0, ran.err
    assert "good on cpu: 1 of 1 operators" in ran.out
    assert "good on gpu: 1 of 1 operators\n  suits the GPU; 0% of the products on the CPU" in ran.out
    assert "good on whole: it runs whole models; only a run shows" in " ".join(ran.out.split())
    told = measured.folder / "explained.err"
    with told.open("wb") as err, (measured.folder / "explained.json").open("wb") as out:
        explaining = measured.start(out, err, *asked, "--json")
    while "planning good\n" not in told.read_text():
        assert explaining.poll() is None, told.read_text()
        time.sleep(0.02)
    assert lock_holder(FarmHome(measured.home).scheduler_lock) is None, "another submit need not wait"
    assert explaining.wait(60) == 0
    cells = json.loads((measured.folder / "explained.json").read_text())
    taken = {cell["delegate"]: cell["explained"]["delegated_ops"] for cell in cells}
    assert taken == {"cpu": 1, "gpu": 1, "whole": 0, "litert": 0}
    refused = measured.farm("submit", "explained.yaml", "--explain")
    assert (refused.code, refused.out) == (2, "")
    assert "--explain goes with --dry-run" in refused.err


def test_results_come_as_documented_json(measured: Shell) -> None:
    cells = measured.farm("results", "--format", "json").json()
    documented = json.loads(
        (Path(__file__).parents[3] / "docs/results-format.md").read_text().split("```")[1][4:]
    )

    def shape(value: object) -> object:
        return {key: shape(entry) for key, entry in value.items()} if isinstance(value, dict) else None

    def without(cell: dict[str, object], *names: str) -> dict[str, object]:
        return {key: value for key, value in cell.items() if key not in names}

    assert len(cells) == 4
    for cell in cells:
        assert cell["status"] == "done"
        assert cell["reason"] is None
        assert cell["accuracy"]["verdict"] == "pass"
        assert cell["samples"] >= 20
        assert cell["latency_ms"]["p99"] is None or cell["samples"] >= 662
        assert (cell["latency_ms"]["p99"] is None) == ("p99" in cell["latency_ms"]["missing"])
        for figures in ("latency_ms", "device_ms", "init_ms", "memory_bytes", "transfer"):
            cell[figures]["missing"] = documented[0][figures]["missing"]
        assert cell["ratio"] is None or shape(cell["ratio"]) == shape(documented[0]["ratio"])
        varying = (
            "delegation",
            "labelled",
            "ratio",
            "variation",
            "sustained",
            "throughput",
            "pipeline",
            "steps",
            "advice",
        )
        assert shape(without(cell, *varying)) == shape(without(documented[0], *varying))


def test_results_come_as_csv_and_markdown_too(measured: Shell) -> None:
    rows = list(csv.DictReader(io.StringIO(measured.farm("results", "--format", "csv").out)))
    assert [row["model"] for row in rows] == ["good", "good", "<b>[red]café", "<b>[red]café"]
    assert all(float(row["latency_ms.p50"]) > 0 for row in rows)
    text = measured.farm("results", "--format", "md").out
    assert "| \\<b\\>\\[red\\]café |" in text
    again, first = measured.farm("results").out, (measured.folder / "submitted.txt").read_text()
    assert again.splitlines()[1:7] == first.splitlines()[1:7], "but for the time and what is reused"
    assert measured.farm("results", "-v").out.startswith("model ")


def test_a_cell_is_shown_in_full(measured: Shell) -> None:
    status = measured.farm("status", "small", "--json").json()
    cell_id = status["cells"][0]["cell"]
    brief = measured.farm("show", cell_id).out
    names = [line.split()[0] for line in brief.splitlines()]
    assert names == [
        "model", "delegate", "verdict", "p50", "grade", "accuracy", "delegation", "start", "memory",
        "measured",
    ]  # fmt: skip
    text = measured.farm("show", cell_id, "--all").out
    assert text.startswith(brief)
    assert "process 1" in text, "the first one, as in warnings and on the page"
    assert "process 0" not in text
    assert "samples in ms" in text
    found = measured.farm("show", cell_id[:8], "--json").json()
    assert [process["cache"] for process in found["processes"]] == ["cold", "warm"]
    kept = (one["runs"] for p in found["processes"] for one in p["slices"] if one["kept"])
    assert sum(kept) == found["result"]["samples"]
    missing = measured.farm("show", "zzzz")
    assert (missing.code, missing.out) == (2, "")


def test_a_profile_is_shown_in_every_form_and_a_missing_one_says_why(measured: Shell) -> None:
    begins = {
        "text": "good on cpu, ",
        "tables": "Profiling Info for Benchmark Initialization:\n",
        "csv": "Profiling Info for Benchmark Initialization:\n",
        "flame": "<!doctype html>\n",
    }
    for form, begin in begins.items():
        shown = measured.farm("show", "good", "cpu", "--profile", form)
        assert shown.code == 0, shown.err
        assert shown.out.startswith(begin)
    assert "GFLOP/s in fp32" in measured.farm("show", "good", "cpu", "--profile", "text").out
    found = measured.farm("show", "good", "cpu", "--json").json()["profile"]
    assert (found["detail"], len(found["operators"])) == ("kernels", 1)
    assert "profile           kernels, " in measured.farm("show", "good", "cpu", "--all").out
    whole = measured.farm("show", "good", "litert", "--profile", "text")
    assert (whole.code, whole.out) == (2, "")
    assert "runs whole models" in whole.err
    unasked = measured.farm("show", "café", "cpu", "--profile", "text")
    assert "measure: {profile: kernels}" in unasked.err


def test_a_cell_and_a_campaign_are_named_by_words(measured: Shell) -> None:
    assert measured.farm("show", "good", "litert").out.startswith("model ")
    why = measured.farm("show", "--why", "good", "cpu")
    assert "it has ended: done" in why.out
    # Another test may have submitted it once more meanwhile.
    ended = measured.farm("show", "--logs", "good", "cpu").out
    assert any(word in ended for word in ("finished", "reused"))
    several = measured.farm("show", "good")
    assert several.code == 2
    assert "'good' fits 2 cells" in several.err
    assert measured.farm("results", "mal", "--json").json() == measured.farm("results", "--json").json()
    for words in (["small", "good", "cpu"], ["good", "cpu"], ["--campaign", "small", "GOOD", "cpu"]):
        found = measured.farm("results", *words, "--json").json()
        assert {(cell["model"], cell["delegate"]) for cell in found} == {("good", "cpu")}, words
    wrong = measured.farm("results", "good", "litetr")
    assert (wrong.code, "by 'litetr'; did you mean 'litert'?" in wrong.err) == (2, True)


def test_results_are_narrowed_and_show_another_figure(measured: Shell) -> None:
    shown = measured.farm("results", "--metric", "init", "--only", "go*", "--delegate", "litert")
    lines = shown.out.splitlines()
    assert lines[1:4] == ["init, cold, lower is better.", "", "model   litert"]
    assert [line.split()[0] for line in lines if " ms" in line] == ["good"]
    told = measured.farm("results", "--metric", "init", "-v").out.splitlines()
    assert told[-1].startswith("init, cold: From just before the delegate")
    wrong = measured.farm("results", "--metric", "inti")
    assert (wrong.code, "did you mean 'init'" in wrong.err) == (2, True)
    nothing = measured.farm("results", "--only", "god")
    assert (nothing.code, "no model of these results matches 'god'" in nothing.err) == (2, True)
    planned = measured.farm(
        "submit", "models.yaml", "--dry-run", "--json",
        "--level", "standard", "--model-id", "go*", "--device", "host-*",
    ).json()  # fmt: skip
    assert {(cell["model"], cell["level"]) for cell in planned} == {("good", "standard")}


def test_status_lists_campaigns_and_cells(measured: Shell) -> None:
    assert "small" in measured.farm("status").out
    (*_, newest) = sorted(
        measured.farm("status", "--json").json()["campaigns"], key=lambda c: c["submitted_at"]
    )
    assert newest["counts"]["done"] == 4
    assert "4 cells: 4 done" in measured.farm("status", newest["campaign_id"]).out
    alone = measured.farm("status", newest["campaign_id"], "--json").json()
    assert {name: value for name, value in alone.items() if name != "cells"} == newest
    assert measured.farm("status", "nothing").code == 2
    assert measured.farm("results", "--campaign", "nothing").code == 2
    assert len(measured.farm("results", "--campaign", "all", "--json").json()) >= 4


@pytest.mark.slow
def test_the_site_is_built_from_the_command_line(measured: Shell) -> None:
    ran = measured.farm("site", "build", "--out", measured.folder / "public")
    assert ran.code == 0, ran.err
    index = measured.folder / "public" / "index.html"
    assert ran.out == f"site: {index.as_uri()}\n"
    assert index.is_file()
    checked = measured.farm("site", "check", measured.folder / "public")
    assert (checked.code, checked.out) == (0, f"{measured.folder / 'public'}: 0 faults\n")
    assert measured.farm("site", "build", "--json").json() == {"site": str(measured.home / "site/index.html")}


def test_devices_and_doctor_describe_this_machine(measured: Shell) -> None:
    said = measured.farm("devices", "--json").json()
    host = next(device for device in said["devices"] if device["device_id"] == "host-cpu")
    assert "cpu" in host["delegates"]
    assert host["noise"] is None, "nobody has measured it against itself"
    assert "host-cpu" in measured.farm("devices").out
    found = measured.farm("doctor", "--json").json()
    bad = [check for check in found["checks"] if not check["ok"]]
    assert all(check["fix"] for check in bad)
    assert found["ok"] == (not bad)


def test_a_broken_model_fails_in_its_cells_and_the_others_finish(shell: Shell) -> None:
    good = unary_model()
    shell.write("good.tflite", good)
    shell.write("cut.tflite", good[: len(good) // 2])
    shell.write("models.yaml", CAMPAIGN.replace('"<b>[red]café", source: wide', "cut, source: cut"))
    ran = shell.farm("submit", "models.yaml", "--delegate", "litert", "--json")
    assert ran.code == 1
    assert "warning: cut: not a usable .tflite" in ran.err
    found = {cell["model"]: cell for cell in ran.json()}
    assert found["good"]["status"] == "done"
    assert found["cut"]["status"] == "failed"
    assert found["cut"]["reason"]["code"] == "model_format"


def test_a_source_that_cannot_be_reached_ends_its_own_cells_only(shell: Shell) -> None:
    shell.write("good.tflite", unary_model())
    source = "https://nowhere.invalid/m.tflite"
    shell.write(
        "models.yaml", CAMPAIGN.replace('"<b>[red]café", source: wide.tflite', f'away, source: "{source}"')
    )
    ran = shell.farm("submit", "models.yaml", "--delegate", "litert", "--json")
    assert ran.code == 1
    assert "warning: away: its cells will fail: https://nowhere.invalid/m.tflite" in ran.err
    found = {cell["model"]: cell for cell in ran.json()}
    assert found["good"]["status"] == "done"
    assert (found["away"]["status"], found["away"]["reason"]["code"]) == ("failed", "artifact")
    assert "submit the campaign again" in found["away"]["reason"]["text"]
    assert shell.farm("db", "check", "--deep").code == 0
    assert "no file" in shell.farm("show", found["away"]["cell_id"], "--all").out
    assert shell.farm("retry", found["away"]["campaign_id"], "--failed", "--json").json()["retried"] == 0
    assert shell.farm("site", "build").code == 0
    assert shell.farm("submit", "models.yaml", "--only", "away").code == 4


LONG = CAMPAIGN.replace("rounds: 3, slice: {seconds: 0.01}", "rounds: 10, slice: {seconds: 6}")


def started(shell: Shell) -> Fork:
    """Start a submit whose first cell will not end by itself, and which writes to `out` and `err`; wait until
    that cell runs.
    """
    shell.write("good.tflite", unary_model(size=1 << 22))
    shell.write("wide.tflite", unary_model(size=1 << 21))
    shell.write("models.yaml", LONG)
    with (shell.folder / "out").open("wb") as out, (shell.folder / "err").open("wb") as err:
        submit = shell.start(out, err, "submit", "models.yaml", "--delegate", "litert")
    for _ in range(600):
        if has_a_running_attempt(shell.home / "farm.db"):
            return submit
        assert submit.poll() is None, (shell.folder / "err").read_text()
        time.sleep(0.1)
    submit.kill()
    raise AssertionError("no cell started")


def has_a_running_attempt(database: Path) -> bool:
    with (
        contextlib.suppress(sqlite3.OperationalError),  # there is no file, or no table so far
        contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as opened,
    ):
        return opened.execute("SELECT 1 FROM attempt WHERE state = 'running'").fetchone() is not None
    return False


@pytest.mark.slow
def test_ctrl_c_stops_the_runner_keeps_the_campaign_and_says_how_to_go_on(shell: Shell) -> None:
    submit = started(shell)
    submit.send_signal(signal.SIGINT)
    code, out, err = submit.wait(60), *((shell.folder / name).read_text() for name in ("out", "err"))
    assert code == 130, err
    assert out == ""
    home = f"FARM_HOME={shell.home}"
    assert err.splitlines()[-1].split() == [home, "farm", "submit", "models.yaml", "--delegate", "litert"]
    assert "Traceback" not in err
    (campaign,) = shell.farm("status", "--json").json()["campaigns"]
    assert campaign["counts"].get("queued") == 2
    assert "host" in shell.farm("devices").out


@pytest.mark.slow
def test_another_terminal_cancels_a_running_campaign(shell: Shell) -> None:
    submit = started(shell)
    ran = shell.farm("cancel", "small")
    assert (ran.code, ran.out) == (0, "small: 2 cells cancelled\n")
    assert submit.wait(60) == 1, (shell.folder / "err").read_text()
    out = (shell.folder / "out").read_text()
    assert out.count("cancelled [a]") == 2
    assert out.splitlines()[-1] == "[a] by the user"
    assert shell.farm("cancel", "nothing").code == 2
