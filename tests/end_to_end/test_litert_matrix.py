"""LiteRT as a matrix of its own through `farm submit`: its interfaces as columns, pruned by rules."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.end_to_end.conftest import run_farm
from tests.runtime.delegates.peers.small_models import conv_model, variable_model

MANIFEST = """\
version: 1
campaign: litert
defaults:
  measure: {blocks: 1, rounds: 3, slice: {seconds: 0.02}, warmup: {runs: 2, min_seconds: 0}}
models:
  - {id: conv, source: conv.tflite}
  - {id: variable, source: variable.tflite}
delegates:
  litert: {kind: litert, api: [interpreter, compiled_model], precision: [fp32, fp16], threads: 1}
include: [{delegate: "*-compiled_model-*"}, {delegate: "*-fp32", model: conv}]
exclude: [{delegate: "*-fp16", model: variable}]
"""


@dataclass(frozen=True)
class Ran:
    """A campaign that has ended: what its plan showed, and its results by model and delegate."""

    plan: str
    cells: dict[tuple[str, str], dict]


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> Ran:
    folder: Path = tmp_path_factory.mktemp("litert")
    (folder / "conv.tflite").write_bytes(conv_model())
    (folder / "variable.tflite").write_bytes(variable_model())
    (folder / "models.yaml").write_text(MANIFEST, encoding="utf-8")
    home, file = folder / "home", str(folder / "models.yaml")
    plan = run_farm(home, "submit", file, "--dry-run")
    assert plan.returncode == 0, plan.stdout + plan.stderr
    done = run_farm(home, "submit", file)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    results = run_farm(home, "results", "--format", "json")
    assert results.returncode == 0, results.stderr
    cells = {(cell["model"], cell["delegate"]): cell for cell in json.loads(results.stdout)}
    return Ran(plan.stdout + plan.stderr, cells)


def test_both_interfaces_are_measured_and_judged(ran):
    for name, precision in (
        ("litert-interpreter-fp32", "fp32"),
        ("litert-compiled_model-fp32", "fp32"),
        ("litert-compiled_model-fp16", "fp16"),
    ):
        cell = ran.cells["conv", name]
        assert cell["status"] == "done", cell["reason"]
        assert cell["accuracy"]["verdict"] == "pass"
        assert (cell["settings"]["api"], cell["settings"]["precision"]) == (name.split("-")[1], precision)


def test_what_an_interface_lacks_is_unsupported_in_litert_s_words(ran):
    cell = ran.cells["variable", "litert-compiled_model-fp32"]
    assert (cell["status"], cell["reason"]["code"]) == ("unsupported", "unsupported_operator")
    assert "Variable tensors not yet supported" in cell["reason"]["text"]


def test_the_plan_shows_what_the_rules_leave_out(ran):
    assert re.search(r"variable\s+litert-interpreter-fp32.*no rule of `include` chooses it", ran.plan)
    assert re.search(r"variable\s+litert-compiled_model-fp16.*by the rule", ran.plan)
    assert not re.search(r"conv\s+litert-compiled_model-f\S+.*rule", ran.plan)
