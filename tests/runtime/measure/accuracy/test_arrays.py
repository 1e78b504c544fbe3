"""Arrays with labels: what fits a model, what does not, and how ties and quantised inputs are taken."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

from runtime.errors import DataError
from runtime.measure.accuracy import tensors
from runtime.measure.accuracy.answers import read_answers
from runtime.measure.accuracy.data import Data
from runtime.measure.accuracy.evaluating import evaluate
from runtime.measure.accuracy.intervals import judged_share, share_interval
from runtime.measure.accuracy.scores import scores
from runtime.measure.loading import Opener
from runtime.model.graph import Model, Operator, Quantization, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.writer import write_model

ROWS = np.array([[0.1, 0.9, 0.0], [0.7, 0.2, 0.1], [0.5, 0.5, 0.2], [0.3, 0.2, 0.1]], np.float32)
LABELS = np.array([1, 0, 1, 2])


def relu(folder, kind=TensorType.FLOAT32, quantization=None):
    tensors = tuple(
        Tensor(i, name, kind, (1, 3), quantization=quantization) for i, name in enumerate(("x", "y"))
    )
    operator = Operator(0, BuiltinOperator.RELU, 1, (0,), (1,))
    path = folder / "relu.tflite"
    path.write_bytes(write_model(Model(3, "", (Subgraph(0, "main", tensors, (0,), (1,), (operator,)),))))
    return path


def saved(folder, **arrays):
    path = folder / "data.npz"
    np.savez(path, **arrays)
    return path


def right_ones(folder, kind, model, path):
    """Return the right answers of Top-1 and Top-2."""
    told, answers = [], folder / f"{len(list(folder.iterdir()))}.jsonl"
    opener = Opener.prepare(kind, {})
    found = evaluate(opener, model, Data(path), answers, {}, lambda done, count: told.append((done, count)))
    assert told == [(done, 4) for done in range(1, 5)]
    return [score.right for score in scores(found.head, read_answers(answers))]


@pytest.mark.parametrize("kind", ["cpu", "litert"])
@pytest.mark.parametrize("name", ["x", "inputs"])
def test_right_answers_are_counted_and_ties_go_to_the_lower_class(tmp_path, kind, name):
    path = saved(tmp_path, labels=LABELS, **{name: ROWS})
    assert right_ones(tmp_path, kind, relu(tmp_path), path) == [2, 3]


def test_real_numbers_are_quantised_as_the_input_says(tmp_path):
    quantization = Quantization(scales=(0.01,), zero_points=(-100,))
    model = relu(tmp_path, TensorType.INT8, quantization)
    assert right_ones(tmp_path, "cpu", model, saved(tmp_path, labels=LABELS, x=ROWS))[0] == 2
    levels = saved(tmp_path, labels=LABELS, x=(ROWS * 100 - 100).round().astype(np.int8))
    assert right_ones(tmp_path, "cpu", model, levels)[0] == 2


def test_a_compressed_file_is_read_sample_by_sample(tmp_path):
    np.savez_compressed(tmp_path / "data.npz", labels=LABELS, x=ROWS)
    assert right_ones(tmp_path, "cpu", relu(tmp_path), tmp_path / "data.npz") == [2, 3]


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": ROWS}, "it has no array 'labels'"),
        ({"labels": LABELS.astype(float), "x": ROWS}, "'labels' must be integers"),
        ({"labels": LABELS[:0], "x": ROWS[:0]}, "at least one: 'x' has 0"),
        ({"labels": LABELS, "x": ROWS[:3]}, "'x' has 3, 'labels' has 4"),
        ({"labels": LABELS, "x": np.array([object()] * 4)}, "no plain array of samples"),
        ({"labels": LABELS, "x": np.asfortranarray(ROWS)}, "no plain array of samples"),
        (
            {"labels": LABELS, "other": ROWS, "more": ROWS},
            "no array 'x' or 'inputs', but labels, other, more",
        ),
        ({"labels": LABELS, "x": ROWS[:, :2]}, r"a sample for 'x' is \[2\], the input 'x' \[1, 3\]"),
        ({"labels": LABELS, "x": ROWS.astype(np.int32)}, "'x' takes float32, the data is int32"),
    ],
)
def test_data_that_does_not_fit_is_refused_with_the_reason(tmp_path, arrays, said):
    path = saved(tmp_path, **arrays)
    with pytest.raises(DataError, match=said):
        evaluate(Opener.prepare("cpu", {}), relu(tmp_path), Data(path), tmp_path / "a.jsonl", {})


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_that_no_class_has_is_refused_with_its_sample(tmp_path, label):
    path = saved(tmp_path, labels=np.array([*LABELS[:-1], label]), x=ROWS)
    with pytest.raises(DataError, match=rf"\[{len(LABELS) - 1}\] has the label {label}; .* 3 classes"):
        right_ones(tmp_path, "cpu", relu(tmp_path), path)


@pytest.mark.parametrize("metric", ["top3", "top5"])
def test_a_top_k_of_as_many_classes_is_refused(tmp_path, metric):
    path = saved(tmp_path, labels=LABELS, x=ROWS)
    with pytest.raises(DataError, match=f"{metric} of a model with 3 classes: every answer would be right"):
        evaluate(Opener.prepare("cpu", {}), relu(tmp_path), Data(path, metric=metric), tmp_path / "a", {})


def test_an_array_that_ends_too_early_or_is_too_large_is_refused(tmp_path, monkeypatch):
    path = saved(tmp_path, labels=LABELS, x=ROWS)
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(tmp_path / "cut.npz", "w") as cut:
        for name in whole.namelist():
            cut.writestr(name, whole.read(name)[: -4 if name == "x.npy" else None])
    with pytest.raises(DataError, match="'x' ends before its last sample"):
        right_ones(tmp_path, "cpu", relu(tmp_path), tmp_path / "cut.npz")
    for shape, said in (
        ((4, 2**62, 4), f"a sample of {2**66} bytes"),
        ((4, -1, -3), "no plain array of samples"),
    ):
        with zipfile.ZipFile(tmp_path / "huge.npz", "w") as huge, huge.open("x.npy", "w") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "<f4", "fortran_order": False, "shape": shape}
            )
        with pytest.raises(DataError, match=said):
            tensors.Arrays(tmp_path / "huge.npz").column("x")
    monkeypatch.setattr(tensors, "_LARGEST_SAMPLE", 8)
    with pytest.raises(DataError, match="a sample of 12 bytes; at most 8"):
        right_ones(tmp_path, "cpu", relu(tmp_path), path)


@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    [(72, 100, 0.6251, 0.7986), (20, 20, 0.8389, 1.0), (0, 10, 0.0, 0.2775), (1, 1, 0.2065, 1.0)],
)
def test_a_share_has_the_interval_of_wilson(right, count, low, high):
    """The values are those of R's prop.test(right, count, correct = FALSE)."""
    assert share_interval(right, count) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize(
    ("right", "count", "at_least", "verdict"),
    [
        (72, 100, 0.7, "inconclusive"),
        (68, 100, 0.7, "inconclusive"),
        (720, 1000, 0.7, "inconclusive"),
        (740, 1000, 0.7, "pass"),
        (660, 1000, 0.7, "fail"),
        (20, 20, 1.0, "inconclusive"),
        (19, 20, 1.0, "fail"),
    ],
)
def test_a_share_is_judged_by_its_whole_interval(right, count, at_least, verdict):
    assert judged_share(share_interval(right, count), at_least) == verdict
