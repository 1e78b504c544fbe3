"""Average precision beside pycocotools, on random scenes and by hand."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from runtime.measure.accuracy.average_precision import Curves, Detection, Object, matched

CLASSES = 4


def scenes(seed, count=12, crowds=True, ties=True):
    """Return pictures with objects, and detections that miss, hit, double and confuse them."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        objects, found = [], []
        for _ in range(rng.integers(0, 7)):
            box = np.concatenate([rng.uniform(0, 60, 2), rng.uniform(4, 40, 2)])
            category = int(rng.integers(0, CLASSES))
            crowd = bool(crowds and rng.random() < 0.2)
            objects.append(Object(category, tuple(box.tolist()), crowd))
            for _ in range(rng.integers(0, 4)):
                moved = tuple((box + rng.normal(0, 2.5, 4)).clip(0.5).tolist())
                score = float(rng.choice([0.25, 0.5, 0.75])) if ties else float(rng.random())
                other = category if rng.random() < 0.8 else int(rng.integers(0, CLASSES))
                found.append(Detection(other, score, moved))
        # A class that no picture has is found as well.
        found.append(Detection(CLASSES, float(rng.random()), (1.0, 2.0, 30.0, 40.0)))
        made.append((found, objects))
    return made


def curves_of(pictures):
    made = Curves()
    for found, objects in pictures:
        counts: dict[int, int] = {}
        for one in objects:
            counts[one.category] = counts.get(one.category, 0) + (not one.is_crowd)
        answers = [(one.category, one.score, one.right, one.ignored) for one in matched(found, objects)]
        made.add(answers, counts)
    return made


def by_pycocotools(pictures):
    """Return average precisions [10, classes] with objects, of areas of every size."""
    coco, results = COCO(), []
    coco.dataset = {
        "info": {},
        "images": [{"id": i} for i in range(len(pictures))],
        "categories": [{"id": c} for c in range(CLASSES + 1)],
        "annotations": [
            {
                "id": number, "image_id": i, "category_id": one.category, "bbox": list(one.box),
                "area": one.box[2] * one.box[3], "iscrowd": int(one.is_crowd),
            }
            for number, (i, one) in enumerate(
                ((i, one) for i, (_, objects) in enumerate(pictures) for one in objects), 1
            )
        ],
    }  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()):
        coco.createIndex()
        for i, (found, _) in enumerate(pictures):
            results += [
                {"image_id": i, "category_id": d.category, "bbox": list(d.box), "score": d.score}
                for d in found
            ]
        judge = COCOeval(coco, coco.loadRes(results), "bbox")
        judge.evaluate()
        judge.accumulate()
    precision = judge.eval["precision"][:, :, :, 0, -1]
    return precision.mean(axis=1)[:, (precision > -1).all(axis=(0, 1))]


@pytest.mark.parametrize("seed", range(6))
def test_the_figures_are_those_of_pycocotools(seed):
    pictures = scenes(seed, ties=seed % 2 == 0)
    np.testing.assert_allclose(curves_of(pictures).precisions(), by_pycocotools(pictures), atol=1e-9)


def test_more_than_a_hundred_detections_of_a_class_count_as_in_pycocotools():
    rng = np.random.default_rng(9)
    box = (10.0, 10.0, 20.0, 20.0)
    found = [Detection(0, float(score), (60.0, 60.0, 9.0, 9.0)) for score in rng.random(150) + 0.5]
    pictures = [([*found, Detection(0, 0.1, box)], [Object(0, box)]), *scenes(3)]
    np.testing.assert_allclose(curves_of(pictures).precisions(), by_pycocotools(pictures), atol=1e-9)


def test_hand_made_boxes_have_the_known_precision():
    """Two objects; the best detection is false, the second right up to 0.8, the other object is missed.

    Precision 1/2 up to recall 1/2, which 51 of 101 recalls reach.
    """
    objects = [Object(1, (0.0, 0.0, 10.0, 10.0)), Object(1, (50.0, 50.0, 10.0, 10.0))]
    found = [Detection(1, 0.9, (80.0, 80.0, 5.0, 5.0)), Detection(1, 0.8, (0.0, 0.0, 10.0, 8.0))]
    each = curves_of([(found, objects)]).precisions()[:, 0]
    np.testing.assert_allclose(each, [0.5 * 51 / 101] * 7 + [0.0] * 3)


def test_a_class_without_an_object_is_left_out_or_nothing_as_in_litert():
    pictures = scenes(0)
    plain, litert = (curves_of(pictures).precisions(absent_is_zero=zero) for zero in (False, True))
    assert litert.shape[1] == plain.shape[1] + 1
    np.testing.assert_array_equal(litert[:, -1], 0.0)


def test_pictures_drawn_twice_count_twice():
    pictures = scenes(1, ties=False)
    weights = np.random.default_rng(0).integers(0, 3, len(pictures))
    drawn = [picture for picture, times in zip(pictures, weights, strict=True) for _ in range(times)]
    whole, again = curves_of(pictures), curves_of(drawn)
    # The copies of a detection are one step of the curve here, and two there.
    np.testing.assert_allclose(whole.precisions(weights), again.precisions(), atol=0.02)
