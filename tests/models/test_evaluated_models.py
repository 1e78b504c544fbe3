"""A real classifier and a real detector on labelled pictures: the scores are those of LiteRT's CPU."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path

import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from runtime.measure.accuracy.data import Data
from runtime.tools.model_diff.running import Setting
from runtime.tools.model_eval.variants import Found, evaluate_all, variants_of
from tests.models.collection import data_folder, real_model
from tests.models.face_detector import face_detector, face_pictures
from tests.models.pictures import labelled

LITERT = ("litert", Setting("litert", {"threads": 1}))
OURS = [("cpu", Setting("cpu", {"threads": 1}))]
GPU = [("gpu", Setting("gpu", {"tuning": "none"})), ("fp16", Setting("gpu", {"precision": "fp16"}))]


def evaluated(
    folder: Path, model: bytes, data: Data, settings: list[tuple[str, Setting]]
) -> tuple[Found, ...]:
    """Evaluate LiteRT and further settings on a data set."""
    file = folder / "model.tflite"
    file.write_bytes(model)
    told: list[str] = []
    made = evaluate_all(
        variants_of([file], [LITERT, *settings]), data, folder / "answers", 0.1,
        lambda name, _done, _count: told.append(name),
    )  # fmt: skip
    assert [one.why_not for one in made] == [""] * len(made)
    return made


def imagenet(folder: Path) -> Data:
    """Return the pictures of ImageNet's classes with their labels."""
    pictures, labels = folder / "pictures", data_folder("google-coral_test_data") / "imagenet_labels.txt"
    pictures.mkdir()
    names = labels.read_text(encoding="utf-8").splitlines()
    truth = []
    for path, label in labelled("foolbox", "imagenet_*.jpg"):
        shutil.copy(path, pictures)
        truth.append(names[label + 1])
    (pictures / "ground_truth.txt").write_text("\n".join(truth), encoding="utf-8")
    return Data(pictures, labels=labels)


def check_classifier(folder: Path, settings: list[tuple[str, Setting]]) -> None:
    reference, *others = evaluated(folder, real_model("coral_mnv1_025_128_u8"), imagenet(folder), settings)
    assert [score.metric for score in reference.scores] == [f"top{k}" for k in range(1, 11)]
    # Of 15 pictures; the others of this small network are hard.
    assert reference.scores[0].right == 7
    for one in others:
        assert all(abs(a.right - b.right) <= 1 for a, b in zip(reference.scores, one.scores, strict=True))
        assert one.against is not None
        assert one.against.samples == 15


def check_detector(folder: Path, settings: list[tuple[str, Setting]]) -> None:
    pictures = folder / "faces"
    pictures.mkdir()
    face_pictures(pictures, 20)
    reference, *others = evaluated(folder, face_detector(), Data(pictures), settings)
    for one in (reference, *others):
        assert one.passed is not None
        assert one.scores[0].value == pytest.approx(by_pycocotools(pictures, one.passed.answers), abs=1e-6)
    assert reference.scores[0].value > 0.5
    for one in others:
        # A picture is one of twenty.
        assert abs(one.scores[0].value - reference.scores[0].value) <= 1 / 20


def by_pycocotools(pictures: Path, answers: Path) -> float:
    """Return the mAP of the answers' boxes by COCO's own tool."""
    with contextlib.redirect_stdout(io.StringIO()):
        made = COCO()
        made.dataset = json.loads((pictures / "instances.json").read_text())
        made.dataset["info"] = {}
        for one in made.dataset["annotations"]:
            one["area"] = one["bbox"][2] * one["bbox"][3]
        made.createIndex()
        ids = {one["file_name"]: one["id"] for one in made.dataset["images"]}
        lines = [json.loads(line) for line in answers.read_text().splitlines()[1:]]
        found = [
            {"image_id": ids[line["file"]], "category_id": entry[0], "score": entry[1], "bbox": entry[4:]}
            for line in lines
            for entry in line["found"]
        ]
        judge = COCOeval(made, made.loadRes(found), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return float(judge.stats[0])


def test_a_classifier_has_the_top_k_of_litert(tmp_path):
    check_classifier(tmp_path, OURS)


@pytest.mark.slow
def test_a_detector_has_the_precision_of_litert_and_of_pycocotools(tmp_path):
    check_detector(tmp_path, OURS)


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_classifier, check_detector])
def test_the_gpu_delegate_has_them_too(tmp_path, check):
    check(tmp_path, GPU)
