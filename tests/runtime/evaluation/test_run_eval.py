"""LiteRT's two `run_eval` tools: lines, metrics, flags and files that cannot be used."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from runtime.evaluation import image_classification, object_detection
from runtime.evaluation.__main__ import main as tools
from runtime.model.schema import BuiltinOperator as Op
from tests.models.face_detector import face_detector, face_pictures
from tests.runtime.models import Builder

CLASSES = 12


def classifier(classes: int = CLASSES) -> bytes:
    """Build a network whose class is the place of the brightest of so many columns."""
    b = Builder()
    x = b.input(np.float32, (1, 4, classes, 3))
    y = b.tensor(np.float32, (1, classes))
    b.operator(Op.MEAN, [x, b.constant(np.array([1, 3], np.int32))], [y], {"keep_dims": False})
    return b.write([y])


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Pictures with known ranks: the true column is the brightest in six, the third in two, last in two."""
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    truth = []
    for number in range(10):
        rank = (0, 0, 0, 0, 0, 0, 2, 2, 11, 11)[number]
        columns = np.arange(CLASSES) * 20
        true = CLASSES - 1 - rank
        truth.append(f"label {true}")
        # Of 8 columns of a square each, the crop of 0.875 takes away half a column at both ends.
        pixels = np.repeat(columns, 56).astype(np.uint8)
        wide = np.pad(pixels, 48, mode="edge")
        square = np.broadcast_to(wide[None, :, None], (len(wide), len(wide), 3))
        Image.fromarray(np.ascontiguousarray(square)).save(pictures / f"{number}.png")
    (tmp_path / "truth.txt").write_text("\n".join(truth) + "\n")
    (tmp_path / "labels.txt").write_text("".join(f"label {n}\n" for n in range(CLASSES)))
    (tmp_path / "model.tflite").write_bytes(classifier())
    return tmp_path


def words(place: Path, **more: object) -> list[str]:
    flags = {
        "model_file": place / "model.tflite",
        "ground_truth_images_path": place / "pictures",
        "ground_truth_labels": place / "truth.txt",
        "model_output_labels": place / "labels.txt",
        **more,
    }
    return [f"--{name}={value}" for name, value in flags.items()]


def fields(content: bytes) -> dict[int, list[object]]:
    """Return the fields of a protocol buffer message by their numbers."""
    found: dict[int, list[object]] = {}
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = content[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while place < len(content):
        key = varint()
        if key & 7 == 0:
            value: object = varint()
        elif key & 7 == 2:
            size = varint()
            value, place = content[place : place + size], place + size
        else:
            width, kind = (8, "<f8") if key & 7 == 1 else (4, "<f4")
            value, place = float(np.frombuffer(content[place : place + width], kind)[0]), place + width
        found.setdefault(key >> 3, []).append(value)
    return found


def test_the_lines_and_the_metrics_are_litert_s(place, capsys):
    out = place / "metrics.pb"
    assert tools(["image_classification_run_eval", *words(place, delegate="cpu", output_file_path=out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Num evaluation runs: 10"
    for line, title in zip(lines[1:3], ("Preprocessing", "Inference"), strict=True):
        assert re.fullmatch(rf"{title} latency: avg=[\d.e+]+\(us\), std_dev=\d+\(us\)", line)
    wanted = [0.6, 0.6, *[0.8] * 8]
    assert lines[3:] == [f"Top-{k} Accuracy: {share:g}" for k, share in enumerate(wanted, 1)]
    whole = fields(out.read_bytes())
    assert whole[1] == [10]
    metrics = fields(fields(whole[2][0])[4][0])
    assert fields(metrics[3][0]) == {1: [10]}
    np.testing.assert_allclose(fields(metrics[4][0])[1], wanted, rtol=1e-6)
    assert fields(metrics[2][0]).keys() == {1, 2, 3, 4, 5, 6}


def test_a_denylist_and_a_number_of_pictures_choose(place, capsys):
    (place / "deny.txt").write_text("1\n7\n")
    more = {"delegate": "cpu", "denylist_file_path": place / "deny.txt", "num_images": 6}
    assert image_classification.main(words(place, **more)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[3]) == ("Num evaluation runs: 6", "Top-1 Accuracy: 0.833333")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"model_file": ""}, "--model_file=PATH is missing"),
        ({"delegate": "nnapi"}, "--delegate=nnapi is not offered: NNAPI exists on Android alone"),
        ({"use_hexagon": "true"}, "--use_hexagon=true is not offered"),
        ({"num_imags": 3}, "no flag --num_imags; did you mean --num_images?"),
        ({"num_images": "few"}, "--num_images=few: not a number of type int"),
        ({"ground_truth_labels": "none.txt"}, "none.txt: No such file"),
        ({"ground_truth_labels": "truth.json"}, "truth.json: expected a text file with a label a line"),
    ],
)
def test_a_wrong_call_ends_with_a_line_and_two(place, capsys, more, said):
    assert image_classification.main(words(place, **more)) == 2
    assert said in capsys.readouterr().err


def test_objects_in_a_file_of_another_kind_are_refused(place, capsys):
    given = {
        "model_file": place / "model.tflite", "ground_truth_images_path": place / "pictures",
        "ground_truth_proto": "truth.txt", "model_output_labels": "labels.txt",
    }  # fmt: skip
    assert object_detection.main([f"--{name}={value}" for name, value in given.items()]) == 2
    assert "truth.txt: its name ends with none of .json, .pbtxt, .pb" in capsys.readouterr().err


def test_help_has_the_flags_of_all_tools(capsys):
    for tool in (image_classification, object_detection):
        assert tool.main(["--help"]) == 0
        assert {"--model_file", "--use_gpu", "--nnapi_accelerator_name"} <= set(
            re.findall(r"--\w+", capsys.readouterr().out)
        )


def test_a_detector_has_ten_precisions_and_their_mean(tmp_path, capsys):
    pictures = tmp_path / "faces"
    pictures.mkdir()
    face_pictures(pictures, 6)
    (tmp_path / "model.tflite").write_bytes(face_detector())
    (tmp_path / "labels.txt").write_text("background\nface\n")
    shutil.move(pictures / "instances.json", tmp_path)
    found = json.loads((tmp_path / "instances.json").read_text())
    shares = {}
    for one, image in zip(found["annotations"], found["images"], strict=True):
        left, top, width, height = (value / 160 for value in one["bbox"])
        sides = {"top": top, "bottom": top + height, "left": left, "right": left + width}
        box = " ".join(f"normalized_{name}: {value}" for name, value in sides.items())
        shares[image["file_name"]] = f"objects {{ class_id: 1 bounding_box {{ {box} }} }}"
    text = "".join(f'detection_results {{ image_name: "{k}" {v} }}\n' for k, v in shares.items())
    (tmp_path / "truth.pbtxt").write_text(text)
    printed = []
    for truth in ("truth.pbtxt", "instances.json"):
        out = tmp_path / "metrics.pb"
        given = {
            "model_file": tmp_path / "model.tflite", "model_output_labels": tmp_path / "labels.txt",
            "ground_truth_images_path": pictures, "ground_truth_proto": tmp_path / truth,
            "output_file_path": out, "debug_mode": "true", "delegate": "cpu",
        }  # fmt: skip
        assert object_detection.main([f"--{name}={value}" for name, value in given.items()]) == 0
        printed.append(capsys.readouterr().out.splitlines())
    lines = printed[0]
    assert lines[0] == "Num evaluation runs: 6"
    assert f"Image: {found['images'][0]['file_name']}" in lines
    values = [float(line.rpartition(" ")[2]) for line in lines if line.startswith("Average Precision")]
    thresholds = [line.partition("=")[2].partition("]")[0] for line in lines if line.startswith("Average")]
    assert thresholds == ["0.5", "0.55", "0.6", "0.65", "0.7", "0.75", "0.8", "0.85", "0.9", "0.95"]
    assert values[0] > 0.9
    assert lines[-1] == f"Overall mAP: {np.mean(values):g}"
    assert [line for line in printed[1] if "recision" in line] == [
        line for line in lines if "recision" in line
    ]
    metrics = fields(fields(fields(fields((tmp_path / "metrics.pb").read_bytes())[2][0])[7][0])[4][0])
    assert metrics[2] == [pytest.approx(np.mean(values), abs=1e-5)]
    assert len(metrics[1]) == 10
