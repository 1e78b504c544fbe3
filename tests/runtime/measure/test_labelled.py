"""Counting right answers: what fits a model, what does not, and how ties and quantised inputs are taken."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.measure import labelled
from runtime.measure.accuracy.intervals import judged_share, share_interval
from runtime.measure.inputs import InputSpecNeededError
from runtime.measure.labelled import count_right, load_labelled
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
    return str(path)


def saved(folder, **arrays):
    path = folder / "data.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("kind", ["cpu", "litert"])
@pytest.mark.parametrize("name", ["x", "inputs"])
def test_right_answers_are_counted_and_ties_go_to_the_lower_class(tmp_path, kind, name):
    samples = load_labelled(saved(tmp_path, labels=LABELS, **{name: ROWS}))
    done = []
    opener = Opener.prepare(kind, {})
    assert count_right(opener, relu(tmp_path), samples, 1, on_sample=done.append) == 2
    assert done == [1, 2, 3, 4]
    assert count_right(opener, relu(tmp_path), samples, 2) == 3


def test_real_numbers_are_quantised_as_the_input_says(tmp_path):
    quantization = Quantization(scales=(0.01,), zero_points=(-100,))
    model = relu(tmp_path, TensorType.INT8, quantization)
    samples = load_labelled(saved(tmp_path, labels=LABELS, x=ROWS))
    assert count_right(Opener.prepare("cpu", {}), model, samples, 1) == 2
    levels = load_labelled(saved(tmp_path, labels=LABELS, x=(ROWS * 100 - 100).round().astype(np.int8)))
    assert count_right(Opener.prepare("cpu", {}), model, levels, 1) == 2


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": ROWS}, "'labels' must be integers"),
        ({"labels": LABELS.astype(float), "x": ROWS}, "'labels' must be integers"),
        ({"labels": LABELS[:0], "x": ROWS[:0]}, "n above 0"),
        ({"labels": LABELS, "x": ROWS[:3]}, "'x' is 3x3; there are 4 labels"),
        ({"labels": LABELS, "x": np.array([object()] * 4)}, "plain arrays"),
    ],
)
def test_a_file_of_another_form_is_refused_with_the_reason(tmp_path, arrays, said):
    with pytest.raises(InputSpecNeededError, match=said):
        load_labelled(saved(tmp_path, **arrays))


def test_what_is_no_archive_or_too_large_unpacked_is_refused(tmp_path, monkeypatch):
    (tmp_path / "text.npz").write_text("no")
    with pytest.raises(InputSpecNeededError, match="plain arrays"):
        load_labelled(tmp_path / "text.npz")
    monkeypatch.setattr(labelled, "LARGEST_BYTES", 100)
    with pytest.raises(InputSpecNeededError, match="at most 100"):
        load_labelled(saved(tmp_path, labels=LABELS, x=ROWS))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"other": ROWS, "more": ROWS}, "no array for the input 'x'; there are: other, more"),
        ({"x": ROWS[:, :2]}, r"a sample for 'x' is \[2\], the input \[1, 3\]"),
        ({"x": ROWS.astype(np.int32)}, "'x' takes float32, the data is int32"),
    ],
)
def test_data_that_does_not_fit_the_model_is_refused_with_the_reason(tmp_path, arrays, said):
    samples = load_labelled(saved(tmp_path, labels=LABELS, **arrays))
    with pytest.raises(InputSpecNeededError, match=said):
        count_right(Opener.prepare("cpu", {}), relu(tmp_path), samples, 1)


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
