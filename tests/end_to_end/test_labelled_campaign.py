"""A campaign whose models are judged on labelled pictures, against the baseline on the same ones."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile

import pytest

from tests.runtime.tools.pictures import GREY, classifier, grey_picture
from tests.services.forks import run

CAMPAIGN = """\
version: 1
campaign: labelled
defaults:
  measure: {warmup: {runs: 1, min_seconds: 0}, blocks: 1, rounds: 3, slice: {seconds: 0}}
models:
  - id: good
    source: model.tflite
    accuracy: {dataset: pictures.zip, metric: top1, at_least: 0.5, max_drop: 0.9}
  - id: damaged
    source: model.tflite
    accuracy: {dataset: damaged, metric: top1}
delegates:
  cpu: {kind: cpu, threads: 1}
  litert: {kind: litert, threads: 1}
baseline: {delegate: litert}
devices:
  - {kind: cpu}
"""


def pictures(damaged: str = "") -> dict[str, bytes]:
    """Return eight pictures of four classes and their truth, by the names of files."""
    made = {f"{number}.png": grey_picture(GREY[number % 4]) for number in range(8)}
    if damaged:
        made[damaged] = made[damaged][:60]
    return made | {"ground_truth.txt": "".join(f"{number % 4}\n" for number in range(8)).encode()}


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory):
    """Return what runs `farm` on a home with the finished campaign."""
    folder = tmp_path_factory.mktemp("labelled")
    (folder / "model.tflite").write_bytes(classifier())
    (folder / "models.yaml").write_text(CAMPAIGN)
    with zipfile.ZipFile(folder / "pictures.zip", "w") as archive:
        for name, content in pictures().items():
            archive.writestr(name, content)
    (folder / "damaged").mkdir()
    for name, content in pictures("5.png").items():
        (folder / "damaged" / name).write_bytes(content)

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return run("farm", *words, cwd=folder, env=os.environ | {"FARM_HOME": str(folder / "home")})

    submitted = call("submit", "models.yaml")
    assert submitted.returncode == 1, submitted.stderr  # a cell has failed, and the others went on
    return call, folder


def test_pictures_are_judged_beside_the_baseline_and_a_damaged_one_is_named(farm):
    call, _ = farm
    cells = json.loads(call("results", "--format", "json").stdout)
    found = {(cell["model"], cell["delegate"]): cell for cell in cells}
    base, own = found["good", "litert"]["labelled"], found["good", "cpu"]["labelled"]
    assert (base["right"], base["samples"], base["verdict"], base["drop"]) == (8, 8, "pass", None)
    assert (own["right"], own["verdict"]) == (8, "pass")
    drop = own["drop"]
    assert (drop["value"], drop["gained"], drop["lost"], drop["changed"], drop["max_drop"]) == (
        0,
        0,
        0,
        0,
        0.9,
    )
    assert drop["baseline"].startswith("litert@")
    for delegate in ("cpu", "litert"):
        cell = found["damaged", delegate]
        assert (cell["status"], cell["reason"]["code"]) == ("failed", "labelled_data")
        assert "labelled data: 5.png: the picture is damaged" in cell["reason"]["text"]


def test_every_answer_is_kept_and_shown(farm):
    call, _ = farm
    head, *lines = [json.loads(line) for line in call("show", "good", "cpu", "--answers").stdout.splitlines()]
    assert head["task"] == "classification"
    assert [line["file"] for line in lines] == [f"{number}.png" for number in range(8)]
    assert "labelled    top1 1 [0.6756 to 1] (8 of 8 right)" in call("show", "good", "cpu").stdout
    shown = call("show", "damaged", "cpu", "--answers")
    assert (shown.returncode, "has no answers to labelled data" in shown.stderr) == (1, True)


def test_the_models_page_sets_accuracy_beside_time_and_size(farm):
    call, folder = farm
    assert call("site", "build", "--out", "public").returncode == 0
    (page,) = [path for path in (folder / "public").rglob("*.html") if 'id="labelled"' in path.read_text()]
    text = page.read_text()
    assert "top1 1 [0.6756 to 1] (8 of 8 right), at least 0.5" in text
    assert "0 answers changed: pass" in text
    assert "●" in text
