"""`farm repro`: a measured cell is measured again, here or by a farm that knows nothing of it."""

from __future__ import annotations

import json
import re
import shutil
import zipfile

import pytest

from orchestrator.manifest.load import parse_manifest
from tests.orchestrator.cli.conftest import Shell
from tests.orchestrator.cli.models import unary_model

CAMPAIGN = """\
version: 1
campaign: small
level: quick
defaults:
  measure: {warmup: {runs: 1, min_seconds: 0}, blocks: 1, rounds: 3, slice: {seconds: 0.01}}
models: [{id: good, source: good.tflite}]
delegates: {cpu: {kind: cpu, threads: 1}}
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Return a farm with one finished cell. The tests that use it only look."""
    shell = Shell(tmp_path_factory.mktemp("measured"))
    shell.write("good.tflite", unary_model())
    shell.write("models.yaml", CAMPAIGN)
    ran = shell.farm("submit", "models.yaml")
    assert ran.code == 0, ran.err
    return shell


@pytest.mark.slow
def test_a_cell_is_reproduced_with_the_same_plan_and_ends_with_the_ratio(
    measured: Shell, shell: Shell
) -> None:
    # A copy: the other tests look at the campaign that was submitted last.
    shutil.copytree(measured.home, shell.home)
    (there,) = shell.farm("results", "--format", "json").json()
    ran = shell.farm("repro", there["cell_id"], "--run", "--json", "--out", "again.yaml")
    assert ran.code == 0, ran.err
    told = ran.json()
    here = told["run"]["cell"]
    assert told["row"]["cell_id"] == there["cell_id"] != here["cell_id"]
    assert (here["campaign"], here["status"]) == (f"repro-{there['cell_id']}", "done")
    assert here["model_sha256"] == there["model_sha256"]
    assert told["run"]["ratio"] == there["latency_ms"]["p50"] / here["latency_ms"]["p50"]
    written = (shell.folder / "again.yaml").read_text()
    assert written == told["document"]
    campaign = parse_manifest(written.encode(), "again.yaml")
    first = parse_manifest(CAMPAIGN.encode(), "models.yaml")
    assert campaign.models[0].plan == first.models[0].plan
    assert campaign.delegates == first.delegates
    assert {one["what"] for one in told["unmatched"]} <= {"baseline", "condition"}, "the same machine"


@pytest.mark.slow
def test_a_bundle_is_measured_by_a_farm_that_knows_nothing_of_it(measured: Shell, shell: Shell) -> None:
    shell.folder.mkdir(exist_ok=True)
    bundle = shell.folder / "cell.zip"
    (there,) = measured.farm("results", "small", "--format", "json").json()
    written = measured.farm("repro", there["cell_id"], "--bundle", bundle)
    assert (written.code, written.out) == (0, ""), written.err
    with zipfile.ZipFile(bundle) as archive:
        about = json.loads(archive.read("bundle.json"))
    assert about["row"]["latency_ms"] == there["latency_ms"]
    assert len(about["inputs_sha256"]) == 64
    ran = shell.farm("repro", "cell.zip", "--run", "--json")
    assert ran.code == 0, ran.err
    here = ran.json()["run"]["cell"]
    assert here["model_sha256"] == there["model_sha256"] == about["model_sha256"]
    assert ran.json()["run"]["ratio"] == there["latency_ms"]["p50"] / here["latency_ms"]["p50"]
    assert "measure it here with --run" in shell.farm("repro", "cell.zip").out
    refused = measured.farm("repro", there["cell_id"], "--bundle", bundle)
    assert (refused.code, "name a new file" in refused.err) == (2, True)


@pytest.mark.slow
def test_a_reproduced_file_can_be_submitted_and_a_run_says_here_and_there(
    measured: Shell, shell: Shell
) -> None:
    shutil.copytree(measured.home, shell.home)
    there = shell.farm("results", "--format", "json").json()[0]["cell_id"]
    assert shell.farm("repro", there).out.startswith(f"# Cell {there} of campaign small")
    written = shell.farm("repro", there, "--out", "again.yaml")
    assert "measure it: farm submit again.yaml" in written.out
    refused = shell.farm("repro", there, "--out", "again.yaml")
    assert (refused.code, "name a new file" in refused.err) == (2, True)
    plan = shell.farm("submit", "again.yaml", "--dry-run", "--json").json()
    assert [(cell["delegate"], cell["action"]) for cell in plan] == [("cpu", "run")]
    ran = shell.farm("repro", there[:10], "--run")
    assert ran.code == 0, ran.err
    assert re.fullmatch(
        r"speed here over there: [\d.]+×; p50 [\d.]+ ms here, [\d.]+ ms there; unpaired, without a verdict",  # noqa: RUF001  # multiplication sign
        ran.out.splitlines()[-1],
    )
