"""Labelled data: the same predictions as LiteRT's, picture by picture, and most of them right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from delegate_farm import Interpreter, load_delegate
from runtime.errors import DeviceError
from tests.models.collection import data_folder, real_model
from tests.models.comparison import REFERENCE, Outputs, in_litert, run_ours, run_rows
from tests.models.pictures import labelled, picture, sound
from tests.needs import absent
from tests.sweeps import rarely


def both(name: str, inputs: list[np.ndarray]) -> tuple[list[Outputs], list[Outputs]]:
    """Return the outputs of one invocation per input: ours, and those of LiteRT's reference kernels."""
    data, rows = real_model(name), [[value] for value in inputs]
    return run_ours(data, rows), in_litert(data, rows, REFERENCE)


def ranked(outputs: list[Outputs], count: int) -> list[list[int]]:
    """Return the `count` best classes of each picture, best first; ties by the lower class."""
    return [
        np.argsort(
            -row[0].reshape(-1).astype(np.int64 if row[0].dtype.kind in "iu" else float), kind="stable"
        )[:count].tolist()
        for row in outputs
    ]


def right_ones(found: list[int], files: list[tuple[Path, int]]) -> int:
    return sum(best == label for best, (_, label) in zip(found, files, strict=True))


@pytest.mark.parametrize(
    ("name", "size", "least"), [("coral_mnv1_025_128_u8", 128, 0.7), rarely("coral_mnv2_10_224_u8", 224, 0.9)]
)
def test_pictures_are_classified_as_by_litert_and_rightly(name, size, least):
    """`least`: share of the pictures whose label is among the best five."""
    files = list(labelled("foolbox", "imagenet_*.jpg"))
    ours, theirs = both(name, [picture(path, (size, size))[None] for path, _ in files])
    found = ranked(ours, 5)
    assert found == ranked(theirs, 5)
    labels = [label + 1 for _, label in files]
    right = sum(label in best for best, label in zip(found, labels, strict=True))
    assert right >= least * len(files)


@pytest.mark.parametrize("name", [rarely("mlc_resnet8_f32"), "mlc_resnet8_i8"])
def test_small_pictures_are_classified_as_by_litert(name):
    files = list(labelled("foolbox", "cifar10_*.png"))
    pictures = [picture(path, (32, 32))[None] for path, _ in files]
    inputs = [
        p.astype(np.float32) if name.endswith("f32") else (p.astype(np.int16) - 128).astype(np.int8)
        for p in pictures
    ]
    ours, theirs = both(name, inputs)
    found = [best[0] for best in ranked(ours, 1)]
    assert found == [best[0] for best in ranked(theirs, 1)]
    assert right_ones(found, files) >= 0.9 * len(files)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_the_precision_changes_the_class_of_one_small_picture_at_most(precision, tmp_path):
    files = list(labelled("foolbox", "cifar10_*.png"))
    data = real_model("mlc_resnet8_f32")
    rows = [[picture(path, (32, 32))[None].astype(np.float32)] for path, _ in files]
    options = {"precision": precision, "tuning": "none", "cache_dir": str(tmp_path)}
    try:
        delegate = load_delegate("gpu", options)
    except DeviceError as error:
        absent(f"no OpenCL device: {error}")
    interpreter = Interpreter(model_content=data, experimental_delegates=[delegate])
    narrow = run_rows(interpreter, rows)
    assert interpreter.delegation.status == "full"
    interpreter.close()
    found = [best[0] for best in ranked(narrow, 1)]
    plain = [best[0] for best in ranked(run_ours(data, rows), 1)]
    assert sum(a != b for a, b in zip(found, plain, strict=True)) <= 1
    assert right_ones(found, files) >= 0.9 * len(files)


@pytest.mark.parametrize("name", ["tflm_mnist_lstm_f32", rarely("coral_keras_lstm_mnist_i8")])
def test_digits_are_read_as_by_litert(name):
    files = list(labelled("foolbox", "mnist_*.png"))
    files += [(data_folder("tensorflow_tflite-micro") / f"sample{digit}.png", digit) for digit in range(10)]
    pictures = [picture(path, (28, 28), "L")[None] for path, _ in files]
    inputs = [(p / 255).astype(np.float32) if name.endswith("f32") else p for p in pictures]
    ours, theirs = both(name, inputs)
    found = [best[0] for best in ranked(ours, 1)]
    assert found == [best[0] for best in ranked(theirs, 1)]
    assert right_ones(found, files) >= 0.85 * len(files)


@pytest.mark.slow
def test_birds_are_named_as_by_litert_and_rightly():
    folder = data_folder("google-coral_test_data")
    names = (folder / "inat_bird_labels.txt").read_text(encoding="utf-8").splitlines()
    inputs = [picture(folder / file, (224, 224))[None] for file in ("parrot.jpg", "bird.bmp")]
    ours, theirs = both("coral_mnv2_inat_bird_u8", inputs)
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(ours, theirs, strict=True))
    found = [names[best[0]] for best in ranked(ours, 1)]
    assert [name.split(" (")[0] for name in found] == ["Ara macao", "Poecile atricapillus"]


@pytest.mark.slow
def test_sounds_are_named_as_by_litert_and_rightly():
    folder = data_folder("tensorflow_tflite-micro")
    labels = (
        (data_folder("tensorflow_flutter-tflite") / "yamnet_label_list.txt")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    clips = [
        np.resize(sound(folder / f"{word}_1000ms.wav"), 15600) for word in ("yes", "no", "noise", "silence")
    ]
    ours, theirs = both("flutter_yamnet", clips)
    found = [best[0] for best in ranked(ours, 1)]
    assert found == [best[0] for best in ranked(theirs, 1)]
    assert [labels[best] for best in found] == ["Speech", "Speech", "Pink noise", "Silence"]


def test_faces_are_found_as_by_litert():
    """30 patches with a face and 30 without, on a grey canvas."""
    patches = np.load(data_folder("scikit-image") / "lfw_subset.npy")
    patches = np.concatenate([patches[:30], patches[100:130]])
    inputs = []
    for patch in patches:
        canvas = np.full((1, 128, 128, 3), 0.0, np.float32)
        enlarged = np.kron(patch, np.ones((3, 3)))[:72, :72]
        canvas[0, 28:100, 28:100] = (enlarged * 2 - 1)[..., None]
        inputs.append(canvas)
    ours, theirs = both("mp_face_detection_short", inputs)
    scores = [np.array([row[1].max() for row in side]) for side in (ours, theirs)]
    np.testing.assert_array_equal(scores[0] > 0, scores[1] > 0)
    assert (scores[0][:30] > 0).sum() >= 27
