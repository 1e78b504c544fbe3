"""`farm submit --check`, and what `farm submit` refuses before anything is stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.results.export import campaign_json
from tests.needs import REPOSITORY
from tests.orchestrator.cli.conftest import Limited, Shell
from tests.orchestrator.cli.models import unary_model
from tests.orchestrator.site.records import demo_farm

GOOD = """\
version: 1
campaign: c
models:
  - {id: a, source: a.tflite}
delegates:
  cpu: {kind: cpu}
"""


def test_the_demo_is_valid(shell: Shell) -> None:
    path = REPOSITORY / "examples" / "models.yaml"
    ran = shell.farm("submit", "--check", path)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"{path}: valid; campaign demo, 9 models x 4 delegates, level quick\n"
    found = shell.farm("submit", "--check", path, "--json").json()
    assert found["valid"] is True
    assert len(found["campaign"]["models"]) == 9
    assert set(found["campaign"]) < set(campaign_json(demo_farm().campaign_list[0])), "a field has one name"
    assert not shell.home.exists()


BAD = {
    "unknown_key": (GOOD + "levle: quick\n", "models.yaml:7:1: unknown key 'levle'; did you mean 'level'?"),
    "unknown_delegate": (
        GOOD.replace("kind: cpu", "kind: gpuu"),
        "models.yaml:6:15: unknown delegate kind 'gpuu'; did you mean 'gpu'?",
    ),
    "bomb": ("a: &a [1, 1]\nb: [*a, *a]\n", "models.yaml:1:4: anchors and aliases"),
    "not_yaml": ("a: [", "models.yaml:1:5: not valid YAML"),
    "binary": (bytes(range(128, 256)), "models.yaml:1:1: not UTF-8 text"),
    "missing_model": (GOOD, "models.yaml:4:21: a.tflite: no such file"),
    "unknown_zoo_model": (
        GOOD.replace("a.tflite", "zoo:resnet"),
        "models.yaml:4:21: zoo:resnet: no such model in the zoo",
    ),
    "huge": (b"#" * (1 << 20) + b"#", "larger than 1048576 bytes"),
}


@pytest.mark.parametrize(("content", "words"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("verb", [("submit", "--check"), ("submit",)], ids=" ".join)
def test_a_file_that_cannot_be_used_ends_with_2_and_stores_nothing(
    shell: Shell, verb: tuple[str, ...], content: str | bytes, words: str
) -> None:
    shell.write("models.yaml", content)
    ran = shell.farm(*verb, "models.yaml")
    assert ran.code == 2
    assert ran.out == ""
    assert words in ran.err
    assert not shell.home.exists()


def test_mistakes_come_as_json_too(shell: Shell) -> None:
    shell.write("a.tflite", unary_model())
    shell.write("models.yaml", GOOD + "levle: quick\n")
    ran = shell.farm("submit", "--check", "models.yaml", "--json")
    assert ran.code == 2
    assert ran.json()["valid"] is False
    problem = {"line": 7, "column": 1, "text": "unknown key 'levle'; did you mean 'level'?"}
    assert ran.json()["problems"] == [problem]


def test_a_missing_file_or_model_is_said_so(shell: Shell) -> None:
    for arguments in (
        ["submit", "none.yaml"],
        ["submit", "--check", "none.yaml"],
        ["submit", "none.tflite"],
    ):
        ran = shell.farm(*arguments)
        assert ran.code == 2
        assert "no such file" in ran.err
        assert not shell.home.exists()


@pytest.mark.parametrize("arguments", [["status"], ["submit", "a.tflite"]])
def test_a_home_that_cannot_be_used_ends_with_4(shell: Shell, arguments: list[str]) -> None:
    shell.write("a.tflite", b"\x1c\x00\x00\x00TFL3")
    shell.write("home", "a file where the folder should be")
    ran = shell.farm(*arguments)
    assert (ran.code, ran.out) == (4, "")
    assert "FARM_HOME" in ran.err


def test_the_doctor_names_a_home_that_cannot_be_used(shell: Shell) -> None:
    shell.write("home", "a file where the folder should be")
    ran = shell.farm("doctor")
    assert ran.code == 1
    assert ran.out.startswith("BAD  home: ")
    assert "fix: set FARM_HOME to another" in ran.out


def test_a_wrong_hash_is_refused_before_anything_is_stored(shell: Shell) -> None:
    shell.write("a.tflite", b"\x1c\x00\x00\x00TFL3")
    shell.write("models.yaml", GOOD.replace("a.tflite", f"a.tflite, sha256: {'0' * 64}"))
    ran = shell.farm("submit", "models.yaml")
    assert ran.code == 2
    assert "wrong sha256" in ran.err
    assert f"expected {'0' * 64}" in ran.err
    assert not shell.home.exists()


def test_an_unknown_name_in_a_selection_is_refused(shell: Shell) -> None:
    shell.write("models.yaml", GOOD)
    ran = shell.farm("submit", "models.yaml", "--delegate", "cpuu")
    assert ran.code == 2
    assert "no delegate of this campaign is called 'cpuu'; did you mean 'cpu'?" in ran.err
    ran = shell.farm("submit", "models.yaml", "--only", "b*")
    assert ran.code == 2
    assert "no model of this campaign matches 'b*'" in ran.err


def test_an_error_shows_no_control_characters_of_the_file(shell: Shell) -> None:
    shell.write("models.yaml", GOOD + '"\\e[2J\\e]0;owned\\a": 1\n')
    shell.write("evil\x1b[31m.yaml", GOOD + "bad: 1\n")
    for name in ("models.yaml", "evil\x1b[31m.yaml"):
        ran = shell.farm("submit", "--check", name)
        assert ran.code == 2
        assert "\x1b" not in ran.err
        assert "\x07" not in ran.err


@pytest.mark.parametrize("verb", [("submit", "--check"), ("submit", "--dry-run")], ids=" ".join)
def test_a_plan_whose_samples_the_farm_would_refuse_is_refused_with_the_figures(
    tmp_path: Path, verb: tuple[str, ...]
) -> None:
    asked = "defaults: {measure: {blocks: {max: 40}, slice: {seconds: 0.2}}}\n"
    lab = (("FARM_ENDPOINT", "http://127.0.0.1:8460"), ("FARM_READ_TOKEN", "r" * 40))
    shell = Limited(tmp_path, lab)
    shell.write("a.tflite", unary_model())
    shell.write("models.yaml", GOOD + asked)
    ran = shell.farm(verb[0], "models.yaml", *verb[1:])
    assert (ran.code, ran.out) == (2, "")
    assert "model a: its raw samples could have 67.9 MiB: up to 40 blocks of 7 rounds" in ran.err
    assert "the farm takes 64.0 MiB: lower slice.seconds or blocks.max, or raise FARM_" in ran.err
    alone = Limited(tmp_path)
    assert alone.farm("submit", "--check", "models.yaml").code == 0, "a farm on one machine has no endpoint"
    shell.write("models.yaml", GOOD)
    assert shell.farm("submit", "--check", "models.yaml").code == 0


ALL_AT_ONCE = """\
version: 1
campaign: every mistake
models:
  - {id: here, source: here.tflite, batch: two}
  - {id: away, source: nowhere.tflite}
  - {id: nameless}
  - {id: half, source: "pypi:mediapipe!x"}
delegates:
  cpu: {kind: cpu}
  fast: {kind: cpuu}
  gpu: {kind: gpu, presicion: fp16}
baseline: {delegate: fasst}
exclude: [{model: hree}]
budgets: ["p50<5 parsecs"]
"""


@pytest.mark.parametrize("verb", [("submit", "--check"), ("submit",)], ids=" ".join)
def test_mistakes_of_form_of_reference_and_of_sources_come_at_once(
    shell: Shell, verb: tuple[str, ...]
) -> None:
    shell.write("here.tflite", unary_model())
    shell.write("models.yaml", ALL_AT_ONCE)
    ran = shell.farm(*verb, "models.yaml")
    assert ran.code == 2
    said = [line.removeprefix("error: ") for line in ran.err.splitlines()]
    places = [tuple(int(part) for part in line.split(":")[1:3]) for line in said]
    assert places == sorted(places)
    wanted = {
        2: "expected letters", 4: "'batch'", 5: "nowhere.tflite: no such file", 6: "missing key 'source'",
        7: "expected pypi:NAME==VERSION!MEMBER", 10: "did you mean 'cpu'?", 11: "did you mean 'precision'?",
        14: "parsecs",
    }  # fmt: skip
    for line, words in wanted.items():
        assert any(words in text for text, (at, _) in zip(said, places, strict=True) if at == line), words
    assert not any("fasst" in text for text in said), "the delegate of line 10 may be the one that is meant"


def test_a_reference_is_judged_where_all_names_are_known(shell: Shell) -> None:
    shell.write("here.tflite", unary_model())
    shell.write(
        "models.yaml",
        "version: 1\ncampaign: c\nmodels: [{id: here, source: here.tflite}]\ndelegates: {cpu: {kind: cpu}}\n"
        "baseline: {delegate: cpuu}\nlabels: [no]\nexclude: [{model: her}]\n",
    )
    ran = shell.farm("submit", "--check", "models.yaml")
    assert "the baseline 'cpuu' is no delegate of this file; did you mean 'cpu'?" in ran.err
    assert "no model is called 'her'" in ran.err
    assert "labels" in ran.err or "expected keys with values" in ran.err
