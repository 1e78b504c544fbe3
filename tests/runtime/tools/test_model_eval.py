"""`farm model eval`: variants on the same samples, what fails, what goes on, and the page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.measure.accuracy.scores import Score
from runtime.tools.model_diff.running import Setting
from runtime.tools.model_eval.process import Passed
from runtime.tools.model_eval.variants import Found, Variant, front
from tests.runtime.tools.pictures import GREY, classifier, grey_picture
from tests.services.forks import run


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for number in range(8):
        (pictures / f"{number}.png").write_bytes(grey_picture(GREY[number % 4]))
    (pictures / "ground_truth.txt").write_text("".join(f"{number % 4}\n" for number in range(8)))
    (tmp_path / "good.tflite").write_bytes(classifier())
    (tmp_path / "bad.tflite").write_bytes(classifier(knows_all=False))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def evaluated(*words: str):
    return run("farm", "model", "eval", *words, cwd=Path.cwd(), env=os.environ)


def test_variants_are_compared_on_the_same_pictures_and_a_drop_is_judged(place):
    words = ["good.tflite", "bad.tflite", "--data", "pictures", "--delegate", "cpu", "--max-drop", "0.01"]
    ended = evaluated(*words, "--page", "page.html", "--json")
    assert ended.returncode == 0, ended.stderr
    good, bad = json.loads(ended.stdout)["variants"]
    assert [score["metric"] for score in good["scores"]] == ["top1", "top2", "top3"]
    assert (good["scores"][0]["right"], bad["scores"][0]["right"]) == (8, 6)
    assert (bad["difference"]["lost"], bad["difference"]["gained"], bad["difference"]["changed"]) == (2, 0, 2)
    # Two of eight are too few to exclude a drop of 1 %.
    assert bad["verdict"] == "inconclusive"
    assert [change["file"] for change in bad["difference"]["changes"]] == ["3.png", "7.png"]
    listed = [json.loads(line) for line in (place / bad["changes"]).read_text().splitlines()]
    assert listed[0] == {"changed": "3.png", "before": "class 3 (right)", "after": listed[0]["after"]}
    assert [line["changed"] for line in listed] == ["3.png", "7.png"]
    page = (place / "page.html").read_text()
    assert "class 3 (right)" in page
    assert "<circle" in page


def test_the_page_is_utf_8_in_every_locale(place):
    farm = [Path(sys.executable).with_name("farm"), "model", "eval", "good.tflite", "--data", "pictures"]
    ended = subprocess.run(
        [*farm, "--delegate", "cpu", "--page", "page.html"],
        env={**os.environ, "PYTHONWARNDEFAULTENCODING": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "model_eval/verb.py" not in ended.stderr, "EncodingWarning"
    assert (place / "page.html").read_text("utf-8")


def test_a_model_that_fails_stands_with_its_reason_and_the_others_go_on(place):
    (place / "broken.tflite").write_bytes(classifier()[:200])
    ended = evaluated("broken.tflite", "good.tflite", "--data", "pictures", "--delegate", "cpu")
    assert ended.returncode == 1
    assert "broken: failed: " in ended.stdout
    assert "top1 1 (8 of 8)" in ended.stdout


def test_a_damaged_picture_is_named_and_the_pass_goes_on_once_it_is_mended(place):
    words = ("good.tflite", "--data", "pictures", "--delegate", "cpu")
    whole = (place / "pictures/5.png").read_bytes()
    (place / "pictures/5.png").write_bytes(whole[:60])
    ended = evaluated(*words)
    assert ended.returncode == 1
    assert "pictures: 5.png: the picture is damaged" in ended.stdout
    answers = place / "good.eval" / "cpu.jsonl"
    before = answers.read_text().splitlines()
    assert len(before) == 1 + 5
    (place / "pictures/5.png").write_bytes(whole)
    ended = evaluated(*words)
    assert ended.returncode == 0, ended.stdout
    assert "top1 1 (8 of 8)" in ended.stdout
    assert answers.read_text().splitlines()[:6] == before
    (place / "good.tflite").write_bytes(classifier(knows_all=False))
    ended = evaluated(*words)
    assert "holds the answers of another model" in ended.stdout


def test_an_open_size_needs_a_shape(place):
    (place / "open.tflite").write_bytes(classifier(is_open=True))
    words = ("open.tflite", "--data", "pictures", "--delegate", "cpu")
    assert "'t0' has an open size, [1, -1, -1, 3]: give it a shape" in evaluated(*words).stdout
    assert "top1 1 (8 of 8)" in evaluated(*words, "--shape", "t0=1,4,6,3").stdout


def test_wrong_words_end_with_a_line(place):
    ended = evaluated("good.tflite", "--data", "pictures", "--mean", "a,b")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "--mean 'a,b' is not one number or three" in ended.stderr
    ended = evaluated("good.tflite", "--data", "pictures", "--delegate", "cpu:thread=2")
    assert ended.returncode == 2
    assert "thread" in ended.stderr


def found(value: float, time: float, size: int, memory: int | None) -> Found:
    passed = Passed({"task": "classification"}, 9, Path("a"), None, None, time, memory)
    variant = Variant(f"{value} {time}", Path("m"), Setting("cpu", {}))
    return Found(variant, size, passed, (Score("top1", value, None, 9),))


def test_the_front_has_what_no_other_variant_beats_in_everything():
    best, fast = found(0.9, 10.0, 100, 50), found(0.8, 5.0, 100, 50)
    beaten, small = found(0.8, 11.0, 100, 50), found(0.5, 20.0, 10, 60)
    assert front([best, fast, beaten, small]) == (best, fast, small)
    # Without its memory a variant is compared by the rest.
    assert front([best, found(0.7, 11.0, 100, None)]) == (best,)
