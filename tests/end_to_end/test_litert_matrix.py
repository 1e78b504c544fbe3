"""LiteRT as a matrix of its own through `farm submit`: interfaces and releases are columns; rules prune."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.end_to_end.conftest import run_farm
from tests.runtime.delegates.peers.small_models import conv_model, variable_model
from tests.services.known import CPU_ALONE
from tests.services.wheels import build_wheel, listed

MANIFEST = """\
version: 1
campaign: litert
defaults:
  measure: {blocks: 1, rounds: 3, slice: {seconds: 0.02}, warmup: {runs: 2, min_seconds: 0}}
models:
  - {id: conv, source: conv.tflite}
  - {id: variable, source: variable.tflite}
delegates:
  litert: {kind: litert, api: [interpreter, compiled_model], force_fp16: [false, true], threads: 1}
  release: {kind: litert, version: [INSTALLED, 0.0.1, 0.0.2, 0.0.3], threads: 1}
baseline: {delegate: release-INSTALLED}
include:
  - {delegate: "release-*", model: conv}
  - {delegate: "*-compiled_model-*"}
  - {delegate: "*-no-force_fp16", model: conv}
exclude: [{delegate: "*_model-force_fp16", model: variable}]
"""


@dataclass(frozen=True)
class Ran:
    """A campaign that has ended, in `home`: what its plan showed, and its results by model and delegate."""

    home: Path
    plan: str
    cells: dict[tuple[str, str], dict]


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> Iterator[Ran]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield measured(tmp_path_factory, monkeypatch)


def measured(tmp_path_factory, monkeypatch) -> Ran:
    folder: Path = tmp_path_factory.mktemp("litert")
    (folder / "conv.tflite").write_bytes(conv_model())
    (folder / "variable.tflite").write_bytes(variable_model())
    allowed = listed(build_wheel(folder, "0.0.1"))
    changed = build_wheel(folder, "0.0.2")
    allowed += listed(changed)
    changed.write_bytes(changed.read_bytes() + b"changed")
    (folder / "wheels.txt").write_text(allowed)
    for name, value in {**CPU_ALONE, "FARM_RUNNER_WHEELS": str(folder / "wheels.txt")}.items():
        monkeypatch.setenv(name, value)
    manifest = MANIFEST.replace("INSTALLED", version("ai-edge-litert"))
    (folder / "models.yaml").write_text(manifest, encoding="utf-8")
    home, file = folder / "home", str(folder / "models.yaml")
    plan = run_farm(home, "submit", file, "--dry-run")
    assert plan.returncode == 0, plan.stdout + plan.stderr
    done = run_farm(home, "submit", file)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    results = run_farm(home, "results", "--format", "json")
    assert results.returncode == 0, results.stderr
    cells = {(cell["model"], cell["delegate"]): cell for cell in json.loads(results.stdout)}
    return Ran(home, plan.stdout + plan.stderr, cells)


@pytest.mark.slow
def test_both_interfaces_are_measured_and_judged(ran):
    for name, precision in (
        ("litert-interpreter-no-force_fp16", "fp32"),
        ("litert-compiled_model-no-force_fp16", "fp32"),
        ("litert-compiled_model-force_fp16", "fp16"),
    ):
        cell = ran.cells["conv", name]
        assert cell["status"] == "done", cell["reason"]
        assert cell["accuracy"]["verdict"] == "pass"
        assert f"({precision})" in cell["accuracy"]["rule"]


def test_what_an_interface_lacks_is_unsupported_in_litert_s_words(ran):
    cell = ran.cells["variable", "litert-compiled_model-no-force_fp16"]
    assert (cell["status"], cell["reason"]["code"]) == ("unsupported", "unsupported_operator")
    assert "Variable tensors not yet supported" in cell["reason"]["text"]


def test_releases_are_measured_by_turns_each_in_an_environment_of_its_own(ran):
    installed = version("ai-edge-litert")
    base, other = (ran.cells["conv", f"release-{one}"] for one in (installed, "0.0.1"))
    for cell, its in ((base, installed), (other, "0.0.1")):
        assert cell["status"] == "done", cell["reason"]
        assert cell["accuracy"]["verdict"] == "pass"
        shown = run_farm(ran.home, "show", cell["cell_id"], "--json")
        assert json.loads(shown.stdout)["environment"]["litert"] == its
    assert other["ratio"]["against"] == f"release-{installed}@host-cpu"


def test_a_release_whose_wheel_is_not_allowed_or_has_another_hash_ends_before_anything_is_measured(ran):
    for release in ("0.0.2", "0.0.3"):
        cell = ran.cells["conv", f"release-{release}"]
        assert (cell["status"], cell["reason"]["code"]) == ("unsupported", "no_device")
        assert f"no release {release} of litert" in cell["reason"]["text"]
        assert re.search(rf"conv\s+release-{release}\s.*no release {release} of litert", ran.plan)
    assert "ai_edge_litert-0.0.2-py3-none-any.whl has the SHA-256 " in cell["reason"]["text"]


def test_the_plan_shows_what_the_rules_leave_out(ran):
    assert re.search(
        r"variable\s+litert-interpreter-no-force_fp16.*no rule of `include` chooses it", ran.plan
    )
    assert re.search(r"variable\s+litert-compiled_model-force_fp16.*by the rule", ran.plan)
    assert not re.search(r"conv\s+litert-compiled_model-\S+.*rule", ran.plan)
