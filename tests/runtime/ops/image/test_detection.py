"""TFLite_Detection_PostProcess, against LiteRT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from runtime.api import interpreter as ours
from runtime.api.interpreter import Interpreter
from runtime.errors import InvocationError, ModelError
from runtime.model.schema import BuiltinOperator
from tests.oracle import LiteRtError, call_in_litert
from tests.runtime import scripts
from tests.runtime.models import Builder, per_tensor

OPTIONS: dict[str, Any] = {
    "max_detections": 10,
    "max_classes_per_detection": 1,
    "detections_per_class": 5,
    "use_regular_nms": False,
    "nms_score_threshold": 0.1,
    "nms_iou_threshold": 0.5,
    "num_classes": 4,
    "y_scale": 10.0,
    "x_scale": 10.0,
    "h_scale": 5.0,
    "w_scale": 5.0,
}
BOXES = 60


def anchors() -> np.ndarray:
    rng = np.random.default_rng(3)
    return np.concatenate([rng.uniform(0, 1, (BOXES, 2)), rng.uniform(0.1, 0.5, (BOXES, 2))], 1).astype(
        np.float32
    )


def model(quantised: bool = False, classes: int = 5, sign: int = 1, **options: Any) -> bytes:
    b = Builder()
    prior = (anchors() * 256).astype(np.uint8) if quantised else anchors() * np.float32(sign)
    dtype, q = (np.uint8, per_tensor(0.05, 120)) if quantised else (np.float32, None)
    encodings = b.input(dtype, (1, BOXES, 4), q)
    scores = b.input(dtype, (1, BOXES, classes), per_tensor(1 / 256) if quantised else None)
    m = OPTIONS["max_detections"] * options.get("max_classes_per_detection", 1)
    made = [b.tensor(np.float32, s) for s in ((1, m, 4), (1, m), (1, m), (1,))]
    b.operator(
        BuiltinOperator.CUSTOM,
        [encodings, scores, b.constant(prior, per_tensor(1 / 256) if quantised else None)],
        made,
        custom_code="TFLite_Detection_PostProcess",
        custom_options=bytes(flexbuffers.Dumps({**OPTIONS, **options})),
    )
    return b.write(made)


def feed(quantised: bool = False, classes: int = 5, seed: int = 0, coarse: bool = False) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    encodings, scores = rng.normal(0, 3, (1, BOXES, 4)), rng.uniform(0, 1, (1, BOXES, classes))
    if coarse:
        scores = np.round(scores * 8) / 8
    if quantised:
        return [
            (encodings / 0.05 + 120).clip(0, 255).astype(np.uint8),
            (scores * 256).clip(0, 255).astype(np.uint8),
        ]
    return [encodings.astype(np.float32), scores.astype(np.float32)]


def check(file: bytes, feeds: list[list[np.ndarray]]) -> None:
    """Compare the count, and as many detections as it says; LiteRT leaves what follows as it was."""
    expected = call_in_litert("tests.runtime.scripts:invoke_each", file, feeds, "BUILTIN")
    found = scripts.invoke_each(ours, file, feeds)
    for mine, theirs in zip(found, expected, strict=True):
        assert [a.shape for a in mine] == [a.shape for a in theirs]
        assert mine[3].tolist() == theirs[3].tolist()
        count = int(theirs[3][0])
        assert count > 0
        np.testing.assert_array_equal(mine[1][:, :count], theirs[1][:, :count])
        np.testing.assert_array_equal(mine[2][:, :count], theirs[2][:, :count])
        np.testing.assert_allclose(mine[0][:, :count], theirs[0][:, :count], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("quantised", [False, True], ids=["float32", "uint8"])
@pytest.mark.parametrize("regular", [False, True], ids=["fast", "regular"])
@pytest.mark.parametrize("threshold", [0.1, 0.9])
def test_detections_are_those_of_litert(quantised, regular, threshold):
    file = model(quantised, use_regular_nms=regular, nms_score_threshold=threshold)
    check(file, [feed(quantised, seed=s) for s in range(4)])


@pytest.mark.parametrize("regular", [False, True], ids=["fast", "regular"])
def test_equal_scores_keep_the_order_of_boxes_and_classes(regular):
    check(model(use_regular_nms=regular, classes=4), [feed(classes=4, seed=s, coarse=True) for s in range(4)])


@pytest.mark.parametrize("regular", [False, True], ids=["fast", "regular"])
def test_several_classes_for_each_box_are_those_of_litert(regular):
    check(model(use_regular_nms=regular, max_classes_per_detection=3), [feed(seed=s) for s in range(3)])


def test_a_box_has_room_for_more_classes_than_there_are():
    file, feeds = model(max_classes_per_detection=6), [feed(seed=s) for s in range(3)]
    expected = call_in_litert("tests.runtime.scripts:invoke_each", file, feeds, "BUILTIN")
    for mine, theirs in zip(scripts.invoke_each(ours, file, feeds), expected, strict=True):
        assert mine[3].tolist() == theirs[3].tolist() == [10]
        for k in range(3):  # LiteRT leaves what follows the four classes of a box as it was
            by_box, wanted = (outputs[k].reshape(10, 6, -1) for outputs in (mine, theirs))
            np.testing.assert_allclose(by_box[:, :4], wanted[:, :4], rtol=1e-6, atol=1e-7)
            assert not by_box[:, 4:].any()


def test_a_box_upside_down_is_an_error_of_the_run():
    file = model(sign=-1)
    with pytest.raises(LiteRtError) as theirs:
        call_in_litert("tests.runtime.scripts:invoke_each", file, [feed()], "BUILTIN")
    assert theirs.value.kind == "RuntimeError"
    with pytest.raises(InvocationError, match="a decoded box has its minimum above its maximum"):
        scripts.invoke_each(ours, file, [feed()])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_classes": 9}, "for 60 boxes and 9 classes"),
        ({"max_detections": 0}, "out of range"),
        ({"nms_iou_threshold": 1.5}, "nms_iou_threshold 1.5 is not in"),
        ({"y_scale": "ten"}, "option y_scale is 'ten', not a number"),
        ({"max_detections": 1 << 30}, "out of range"),
    ],
    ids=lambda v: str(v)[:20],
)
def test_options_that_do_not_fit_are_refused(options, text):
    with pytest.raises(ModelError, match=text):
        Interpreter(model_content=model(**options)).allocate_tensors()
