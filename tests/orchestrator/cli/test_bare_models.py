"""`farm submit` of models without a campaign file, in this process: a real agent, and brief measurements."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.cli import run
from orchestrator.manifest.load import parse_manifest
from orchestrator.manifest.plans import LEVELS
from tests.orchestrator.cli.conftest import Ran
from tests.orchestrator.cli.models import unary_model

BRIEF = {"min_blocks": 1, "max_blocks": 1, "rounds": 3, "slice_seconds": 0.01, "warmup_seconds": 0.0}
"""Counts that stand for those of the level `quick`."""

Farm = Callable[..., Ran]


@pytest.fixture
def farm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], forked_agents: None
) -> Farm:
    monkeypatch.chdir(tmp_path)
    for name, value in {"FARM_HOME": str(tmp_path / "home"), "COLUMNS": "100", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)

    def farm(*words: str) -> Ran:
        code = run([*words])
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return farm


def write(folder: Path, *models: str) -> None:
    for name in models:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(unary_model())


def test_models_need_no_yaml(farm: Farm, tmp_path: Path) -> None:
    write(tmp_path, "my net.tflite", "in/a.tflite", "in/deep/b.tflite", "in/.hidden/c.tflite")
    (tmp_path / "in/notes.txt").touch()

    words = ("in", "in/**/*.tflite", "in/a.tflite", "--model", "my*.tflite")
    plan = farm("submit", *words, "--dry-run", "--json").json()
    assert [cell["model"] for cell in plan] == [name for name in ("a", "b", "my net") for _ in range(3)]
    assert {cell["delegate"] for cell in plan} == {"cpu", "gpu", "litert"}


def test_a_campaign_without_yaml_has_a_name_delegates_and_options(
    farm: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LEVELS, "quick", LEVELS["quick"].model_copy(update=BRIEF))
    write(tmp_path, "a.tflite")
    asked = ("--delegate", "litert", "--threads", "1", "--option", "resolver=reference", "--name", "mine")
    ran = farm("submit", "a.tflite", *asked, "--json")
    assert ran.code == 0, ran.err
    assert farm("status", "--json").json()["campaigns"][0]["name"] == "mine"
    assert [cell["model"] for cell in ran.json()] == ["a"]
    same = parse_manifest(farm("show", "mine", "--manifest").out.encode(), "mine")
    assert [dict(one.options) for one in same.delegates] == [{"threads": 1, "resolver": "reference"}]


CAMPAIGN = """\
version: 1
campaign: small
models: [{id: good, source: a.tflite}]
delegates: {cpu: {kind: cpu}}
"""
FILES = {
    "empty/notes.txt": b"",
    "a.skel": b"",
    "c.yaml": CAMPAIGN.encode(),
    "net.onnx": b"\x08\x07\x12\x07pytorch",
    "net.pt": b"PK\x03\x04",
}
"""Files beside models that are none."""


@pytest.mark.parametrize(
    ("words", "said"),
    {
        "nothing_matches": (["none/*.tflite"], "none/*.tflite matches no .tflite or .skel file"),
        "a_folder_without_models": (["empty"], "empty has 1 files, but no .tflite or .skel file"),
        "no_such_file": (["none.tflite"], "none.tflite: no such file"),
        "one_name": (["a.tflite", "a.skel"], "two models would be called 'a'"),
        "two_inputs": (["a.tflite", "b.tflite", "--input", "x=0..9"], "go with one model"),
        "no_input": (["a.tflite", "--input", "y=0..9"], "a: 'y' is not an input of the model; known: input"),
        "rank": (["a.tflite", "--shape", "input=1,2,3"], "[1, 2, 3] has 3"),
        "campaign_and_model": (["c.yaml", "a.tflite"], "c.yaml is a campaign file; it goes alone"),
        "options_of_a_file": (["c.yaml", "--threads", "2"], "c.yaml says these itself"),
        "name": (["a.tflite", "--name", "-x y"], "--name -x y: a name has up to 100 letters"),
        "twice": (["a.tflite", "--threads", "2", "--option", "threads=1"], "each name once"),
        "http": (["http://example.com/a.tflite"], "http: is not a source of models; use https:"),
        "no_zoo": (["zoo:torchvision_resnet8"], "no such model in the zoo; did you mean"),
        "npm": (["npm:x"], "npm:x: expected npm:NAME@VERSION!MEMBER"),
        "onnx": (["net.onnx"], "an ONNX model, not a .tflite file; convert it: pip install onnx2tf"),
        "torch": (["net.pt"], "a PyTorch file, not a .tflite file; convert its module"),
    }.values(),
)
def test_what_names_no_model_is_one_line_and_nothing_is_stored(
    farm: Farm, tmp_path: Path, words: list[str], said: str
) -> None:
    write(tmp_path, "a.tflite", "b.tflite")
    (tmp_path / "empty").mkdir()
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    ran = farm("submit", *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
    if (tmp_path / "home/farm.db").exists():
        with contextlib.closing(sqlite3.connect(tmp_path / "home/farm.db")) as db:
            assert db.execute("SELECT count(*) FROM campaign").fetchone() == (0,)
