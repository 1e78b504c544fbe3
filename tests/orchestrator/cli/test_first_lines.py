"""The lines that a user types first: each names its models, or is one clear line, and nothing is stored."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from tests.orchestrator.cli.conftest import Call, Shell
from tests.orchestrator.cli.models import unary_model

CAMPAIGN = """\
version: 1
campaign: small
models: [{id: good, source: a.tflite}]
delegates: {cpu: {kind: cpu}}
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Return a farm without campaigns, beside files that are models and others that are not."""
    shell = Shell(tmp_path_factory.mktemp("files"))
    for name in ("a.tflite", "b.tflite"):
        shell.write(name, unary_model())
    shell.write("empty/notes.txt", b"")
    for name in ("nets/c.tflite", "nets/deep/d.tflite", "nets/.old/e.tflite", "odd $(x) $HOME 'ü'.tflite"):
        shell.write(name, unary_model())
    shell.write("a.skel", b"")
    shell.write("c.yaml", CAMPAIGN)
    shell.write("net.onnx", b"\x08\x07\x12\x07pytorch")
    shell.write("net.pt", b"PK\x03\x04")
    return shell


@pytest.mark.parametrize(
    ("words", "models"),
    {
        "a_file": (["a.tflite"], ["a"]),
        "two_files": (["b.tflite", "./a.tflite"], ["b", "a"]),
        "a_folder": (["nets"], ["c", "d"]),
        "a_folder_with_its_slash": (["nets/"], ["c", "d"]),
        "a_quoted_glob": (["nets/*.tflite"], ["c"]),
        "a_glob_of_folders": (["nets/**/*.tflite"], ["c", "d"]),
        "the_option_that_help_once_had": (["--model", "a.tflite", "--model", "nets"], ["a", "c", "d"]),
        "the_zoo": (["zoo:torchvision_resnet18"], ["torchvision_resnet18"]),
        "the_zoo_by_that_option": (["--model", "zoo:torchvision_resnet18"], ["torchvision_resnet18"]),
        "a_glob_of_the_zoo": (["zoo:*squeezenet1_1"], ["torchvision_squeezenet1_1"]),
        "an_address": (["https://example.com/x/e.tflite?raw=true"], ["e"]),
        "a_wheel": (["pypi:mediapipe==0.10.21!mediapipe/modules/f.tflite"], ["f"]),
        "a_package": (["npm:@mediapipe/pose@0.5.1!package/g.tflite"], ["g"]),
        "several": (
            ["nets", "a.tflite", "zoo:torchvision_resnet18"],
            ["c", "d", "a", "torchvision_resnet18"],
        ),
        "options": (["a.tflite", "--delegate", "lite*", "--threads", "2", "--name", "mine"], ["a"]),
        "an_odd_name": (["odd $(x) $HOME 'ü'.tflite"], ["odd $(x) $HOME 'ü'"]),
        "a_campaign_file": (["c.yaml"], ["good"]),
    }.values(),
)
def test_what_names_models_is_taken(call: Call, files: Shell, words: list[str], models: list[str]) -> None:
    ran = call(files, "submit", "--check", *words, "--json")
    assert (ran.code, ran.json()["valid"]) == (0, True)
    assert ran.json()["campaign"]["models"] == models


@pytest.mark.parametrize(
    ("words", "said"),
    {
        "nothing_matches": (["none/*.tflite"], "none/*.tflite matches no .tflite or .skel file"),
        "a_folder_without_models": (["empty"], "empty has 1 file, but no .tflite or .skel file"),
        "no_such_file": (["none.tflite"], "none.tflite: no such file"),
        "no_such_campaign_file": (["none.yaml"], "none.yaml"),
        "an_unset_variable": ([""], "an empty word names no model"),
        "two_unset_variables": ([" "], "an empty word names no model"),
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
    call: Call, files: Shell, words: list[str], said: str
) -> None:
    ran = call(files, "submit", *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
    if (files.home / "farm.db").exists():
        with contextlib.closing(sqlite3.connect(files.home / "farm.db")) as db:
            assert db.execute("SELECT count(*) FROM campaign").fetchone() == (0,)
