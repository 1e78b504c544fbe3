"""`farm submit` of models without a campaign file: a real agent, and a brief measurement."""

from __future__ import annotations

import pytest

from orchestrator.manifest.load import parse_manifest
from orchestrator.manifest.plans import LEVELS
from tests.orchestrator.cli.conftest import Call, Shell
from tests.orchestrator.cli.models import unary_model

BRIEF = {"min_blocks": 1, "max_blocks": 1, "rounds": 3, "slice_seconds": 0.01, "warmup_seconds": 0.0}
"""Counts that stand for those of the level `quick`."""


def test_models_need_no_yaml(call: Call, shell: Shell) -> None:
    for name in ("my net.tflite", "in/a.tflite", "in/deep/b.tflite", "in/.hidden/c.tflite"):
        shell.write(name, unary_model())
    shell.write("in/notes.txt", b"")

    words = ("in", "in/**/*.tflite", "in/a.tflite", "--model", "my*.tflite")
    plan = call(shell, "submit", *words, "--dry-run", "--json").json()
    assert [cell["model"] for cell in plan] == [name for name in ("a", "b", "my net") for _ in range(3)]
    assert {cell["delegate"] for cell in plan} == {"cpu", "gpu", "litert"}


@pytest.mark.slow
def test_a_campaign_without_yaml_has_a_name_delegates_and_options(
    call: Call, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LEVELS, "quick", LEVELS["quick"].model_copy(update=BRIEF))
    shell.write("a.tflite", unary_model())
    asked = ("--delegate", "litert", "--threads", "1", "--option", "resolver=reference", "--name", "mine")
    ran = call(shell, "submit", "a.tflite", *asked, "--json")
    assert ran.code == 0, ran.err
    assert call(shell, "status", "--json").json()["campaigns"][0]["name"] == "mine"
    assert [cell["model"] for cell in ran.json()] == ["a"]
    same = parse_manifest(call(shell, "show", "mine", "--manifest").out.encode(), "mine")
    assert [dict(one.options) for one in same.delegates] == [{"threads": 1, "resolver": "reference"}]
