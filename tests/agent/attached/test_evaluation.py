"""LiteRT's evaluation tools on attached devices: what they are given, and what counts of what they print."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from agent.attached.listing import EVALUATION
from agent.runner.attached.evaluation import data_flags, packed, score_of, tool_of
from agent.wire.plan import LabelledData
from runtime.common.benchmark_log import LogError
from runtime.common.evaluation_log import CLASSIFICATION, DETECTION, INFERENCE_DIFF
from runtime.errors import NoDeviceError
from runtime.measure.accuracy.ground_truth import read_text_proto
from runtime.measure.accuracy.intervals import share_interval
from tests.agent.attached.devices import DIFF, PRINTS, labelled, script
from tests.agent.embedded_agent import job, put_model
from tests.runtime.evaluation.test_run_eval import CLASSES, classifier

ENTRIES = {
    "judged": {"benchmark_model": "benchmark_model", "evaluation": "."},
    "scored": {"evaluation": "scripts"},
}
"""Devices with this project's tools, and with those that a test writes."""

TRUTH = (11, 11, 11, 11, 11, 11, 9, 9, 0, 0)
PICTURES = len(TRUTH)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Return a data set: of ten pictures the classifier of the tests has six right, and two more in three."""
    folder = tmp_path_factory.mktemp("pictures")
    with zipfile.ZipFile(folder / "data.zip", "w") as archive:
        for number in range(PICTURES):
            columns = np.pad(np.repeat(np.arange(CLASSES) * 20, 56).astype(np.uint8), 48, mode="edge")
            square = np.broadcast_to(columns[None, :, None], (len(columns), len(columns), 3))
            content = io.BytesIO()
            Image.fromarray(np.ascontiguousarray(square)).save(content, "png")
            archive.writestr(f"p{number}.png", content.getvalue())
        archive.writestr("ground_truth.txt", "".join(f"{true}\n" for true in TRUTH))
    return folder / "data.zip"


@pytest.mark.slow
def test_outputs_and_labelled_pictures_are_judged_by_the_tools_of_the_device(board, pictures, tmp_path):
    device = next(device for device in board.agent.hello.devices if device.device_id == "judged")
    assert device.environment.keys() >= set(EVALUATION)
    (tmp_path / "model").write_bytes(classifier())
    model = put_model(board.folder / "store", tmp_path / "model")
    plan = labelled(board.folder / "store", pictures, at_least=0.2)
    result = board.agent.run(job(model, device="judged", plan=plan, delegate_options={"threads": 1}))
    assert result.reason is None
    m = result.measurement
    assert m is not None
    assert m.labelled is not None
    assert (m.labelled.metric, m.labelled.samples, m.labelled.right) == ("top1", PICTURES, 6)
    assert (m.labelled.ci95, m.labelled.verdict) == (share_interval(6, PICTURES), "pass")
    assert m.settings["labelled_by"] == f"{CLASSIFICATION} {device.environment[CLASSIFICATION]}"
    assert m.accuracy.reference is not None
    assert m.accuracy.reference.endswith(f"by inference_diff {device.environment[INFERENCE_DIFF]}")
    assert m.accuracy.mean_abs is not None
    assert m.accuracy.mean_abs < 1e-4
    assert (len(m.accuracy.outputs), m.accuracy.verdict) == (1, None)
    assert board.left == []


@pytest.mark.parametrize(
    ("classified", "says"),
    [
        # Two of ten are right, and 0.9 was asked for: as wrong as any output.
        ("Num evaluation runs: 10\nTop-1 Accuracy: 0.2", "labelled data, top1: 2 of 10 right"),
        pytest.param("Segmentation fault", "printed is none of its results", marks=pytest.mark.exhaustive),
    ],
)
def test_what_the_evaluation_tools_print_counts_or_ends_its_own_cell(board, pictures, classified, says):
    board.says(PRINTS)
    (board.folder / "scripts" / "classified").write_text(f"{classified}\n")
    printed = f"case $0 in *inference_diff) echo no list;; *) cat {board.folder}/scripts/classified;; esac"
    script(board.folder / "scripts" / "tool", printed)
    plan = labelled(board.folder / "store", pictures, at_least=0.9)
    result = board.agent.run(job(board.model, device="scored", plan=plan))
    assert result.status == "failed"
    assert says in result.reason.text
    if "Accuracy" in classified:
        assert result.measurement is not None
        accuracy = result.measurement.accuracy
        assert (accuracy.mean_abs, accuracy.verdict) == (None, None)
        assert accuracy.note.startswith("inference_diff: what the device's inference_diff printed is none of")


@pytest.mark.slow
def test_a_wrong_arm_leaves_a_race_on_the_device_before_it_puts_others_behind(board, pictures):
    board.says(PRINTS)
    (board.folder / "scripts" / "diff").write_text(f"{DIFF}\n")
    right = "case $* in *use_xnnpack=false*) s=1;; *) s=0.1;; esac"
    prints = 'printf "Num evaluation runs: 10\\nTop-1 Accuracy: $s\\n"'
    judged = f"case $0 in *diff) cat {board.folder}/scripts/diff;; *) {right}; {prints};; esac"
    script(board.folder / "scripts" / "tool", judged)
    text = board.folder / "text"
    board.tool(f"case $* in *use_xnnpack=true*) sed 's/=100 /=50 /' {text};; *) cat {text};; esac")
    plan = labelled(board.folder / "store", pictures, at_least=0.9)
    results = board.arms("scored", plan.model_copy(update={"halving": "p50", "max_blocks": 4}), base="scored")
    wrong, kept = results["arm"], results["base"]
    assert (wrong.status, wrong.reason.code) == ("failed", "wrong_output")
    assert wrong.measurement.quality.stopped == "behind"
    assert len(wrong.measurement.blocks) == 1
    assert (kept.status, len(kept.measurement.blocks)) == ("done", 4)


@pytest.mark.parametrize(
    ("printed", "says"),
    [
        ("Segmentation fault", "it begins with"),
        ("Num evaluation runs: 10", "no 'OutputDiff"),
        ("Num evaluation runs: 10\nTop-1 Accuracy: 0.2", "no top5 among its lines"),
        ("Num evaluation runs: 0\nTop-5 Accuracy: 0.2", "no top5 among its lines"),
        ("Num evaluation runs: 10\nTop-5 Accuracy: 1.5", "not between 0 and 1"),
    ],
)
def test_what_is_no_score_of_an_evaluation_tool_is_none(printed, says):
    with pytest.raises(LogError, match=says):
        score_of(printed, LabelledData(sha256="0" * 64, size_bytes=1, metric="top5"))


def test_a_mean_average_precision_that_a_tool_tells_has_no_interval_to_judge():
    data = LabelledData(sha256="0" * 64, size_bytes=1, metric="mAP", at_least=0.5)
    score = score_of("Num evaluation runs: 10\nOverall mAP: 0.2\n", data)
    assert (score.share, score.right, score.ci95, score.verdict) == (0.2, None, None, "inconclusive")


@pytest.mark.parametrize(
    ("asked", "environment", "says"),
    [
        ({"metric": "cosine"}, EVALUATION, "top1 to top10 and mAP, not cosine"),
        ({"max_drop": 0.1}, EVALUATION, "tells no single answers"),
        ({"mean": (1.0,), "std": (2.0,)}, EVALUATION, "LiteRT's own alone"),
        ({"metric": "mAP"}, EVALUATION[:2], "the device has no coco_object_detection_run_eval"),
        ({"metric": "top3"}, (), "`evaluation` of its entry names the tools' folder"),
    ],
)
def test_labelled_data_that_no_tool_of_the_device_scores_is_refused_before_anything_is_copied(
    asked, environment, says
):
    data = LabelledData(sha256="0" * 64, size_bytes=1, **asked)
    with pytest.raises(NoDeviceError, match=says):
        tool_of(data, dict.fromkeys(environment, ""))


def test_objects_of_pictures_go_to_the_device_in_the_form_that_its_tool_reads(tmp_path):
    boxes = [{"image_id": 7, "category_id": 3, "bbox": [10, 20, 30, 40]}]
    boxes.append({"image_id": 7, "category_id": 3, "bbox": [0, 0, 100, 200], "iscrowd": 1})
    images = [{"id": 9, "file_name": "b.PNG", "width": 10, "height": 10}]
    images.append({"id": 7, "file_name": "sub/a.jpg", "width": 100, "height": 200})
    (tmp_path / "data" / "sub").mkdir(parents=True)
    (tmp_path / "data" / "b.PNG").write_bytes(b"b")
    (tmp_path / "data" / "sub" / "a.jpg").write_bytes(b"a")
    text = {"images": images, "annotations": boxes, "categories": [{"id": 3, "name": "cat"}]}
    (tmp_path / "data" / "instances.json").write_text(json.dumps(text))
    packed(DETECTION, tmp_path / "data", tmp_path, tmp_path / "out.tar")
    with tarfile.open(tmp_path / "out.tar") as archive:
        archive.extractall(tmp_path / "out", filter="data")
    flags = data_flags(DETECTION, str(tmp_path / "out"))
    truth = read_text_proto(Path(flags["ground_truth_proto"]).read_bytes(), "truth")
    assert [scene.file for scene in truth.scenes] == ["00000000.jpg", "00000001.png"]
    assert [len(scene.objects) for scene in truth.scenes] == [1, 0], "a crowd is no object of LiteRT's"
    (thing,) = truth.scenes[0].objects
    assert (thing.category, thing.box) == (3, pytest.approx((0.1, 0.1, 0.3, 0.2)))
    assert (Path(flags["ground_truth_images_path"]) / "00000000.jpg").read_bytes() == b"a"
    assert Path(flags["model_output_labels"]).read_text().splitlines() == ["???", "???", "???", "cat"]
