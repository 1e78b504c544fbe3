"""Custom operator TFLite_Detection_PostProcess: boxes of an SSD decoded and suppressed where they overlap.

Inputs: encodings [1, B, 4+] (y, x, h, w), scores [1, B, C], anchors [B, 4] (y, x, h, w); float32 or uint8.
Outputs, all float32: boxes [1, M, 4] (ymin, xmin, ymax, xmax), classes [1, M], scores [1, M], count [1].
Formulas and order of ties are those of LiteRT's `kernels/detection_postprocess.cc`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from runtime.model.flexbuffer import number, read_map
from runtime.ops.image.non_max_suppression import overlaps
from runtime.ops.support import Array, Kernel, OpContext, Shape, TensorType
from runtime.ops.support.registry import custom_operator

MAX_DETECTIONS = 1 << 20
"""Largest number of output boxes, M, that the options may ask for. Chosen: outputs of 24 MiB, where a few
bytes of options could ask for any size."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's options; `scales` divide y, x, h and w of an encoding."""

    max_detections: int
    max_classes: int
    per_class: int
    regular: bool
    score_threshold: float
    iou_threshold: float
    num_classes: int
    scales: tuple[float, float, float, float]


def settings(op: OpContext) -> Settings:
    """Read the operator's options. Raises `ModelError` where one is missing or out of range."""
    options = read_map(op.operator.custom_options)
    found = Settings(
        max_detections=int(number(options, "max_detections")),
        max_classes=int(number(options, "max_classes_per_detection")),
        per_class=int(number(options, "detections_per_class", 100)),
        regular=bool(number(options, "use_regular_nms", 0)),
        score_threshold=float(number(options, "nms_score_threshold")),
        iou_threshold=float(number(options, "nms_iou_threshold")),
        num_classes=int(number(options, "num_classes")),
        scales=tuple(float(number(options, f"{c}_scale")) for c in "yxhw"),  # type: ignore[arg-type]  # four
    )
    counts = (found.max_detections, found.max_classes, found.per_class, found.num_classes)
    if min(counts) < 1 or found.max_detections * found.max_classes > MAX_DETECTIONS:
        raise op.error(f"counts {counts} of its options are out of range")
    if not 0 < found.iou_threshold <= 1:
        raise op.error(f"nms_iou_threshold {found.iou_threshold} is not in (0, 1]")
    return found


def _shapes(op: OpContext) -> tuple[Shape, ...]:
    found = settings(op)
    encodings, scores, anchors = (op.input(i).shape for i in range(3))
    if len(encodings) != 3 or encodings[0] != 1 or encodings[2] < 4:
        raise op.error(f"box encodings of shape {list(encodings)} are not [1, B, 4]")
    boxes = encodings[1]
    if scores[:2] != (1, boxes) or len(scores) != 3 or not 0 <= scores[2] - found.num_classes <= 1:
        raise op.error(f"scores of shape {list(scores)} for {boxes} boxes and {found.num_classes} classes")
    if anchors != (boxes, 4):
        raise op.error(f"anchors of shape {list(anchors)} are not [{boxes}, 4]")
    detections = found.max_detections * found.max_classes
    return ((1, detections, 4), (1, detections), (1, detections), (1,))


@custom_operator("TFLite_Detection_PostProcess", infer=_shapes)
def detection_post_process(op: OpContext) -> Kernel:
    """Decode the boxes, suppress, and write what is kept, best first, and zeros elsewhere.

    Fast mode suppresses once, by each box's best score. Regular mode suppresses within each class, and keeps
    the best of all classes. Raises `ShapeError` for a box whose minimum is above its maximum.
    """
    found = settings(op)
    reads = [_floats(op, i) for i in range(3)]
    outputs = [op.write(i) for i in range(4)]
    suppress = _regular if found.regular else _fast
    # Fast mode leaves room for `max_classes` at each box, also where there are fewer classes.
    each, room = (1, 1) if found.regular else (min(found.max_classes, found.num_classes), found.max_classes)

    def run() -> None:
        encodings, scores, anchors = (read() for read in reads)
        boxes = decode(encodings[0, :, :4], anchors, found.scales)
        if (boxes[:, 0] > boxes[:, 2]).any() or (boxes[:, 1] > boxes[:, 3]).any():
            raise op.error("a decoded box has its minimum above its maximum")
        # A class more than the options count is the background, which comes first.
        scores = scores[0, :, scores.shape[2] - found.num_classes :]
        chosen, classes, values = suppress(boxes, scores, found)
        for output in outputs:
            output.fill(0)
        count = len(chosen) // each
        places = (np.arange(count)[:, None] * room + np.arange(each)).reshape(-1)
        outputs[0][0, places] = boxes[chosen]
        outputs[1][0, places] = classes
        outputs[2][0, places] = values
        outputs[3][0] = count

    return run


def _floats(op: OpContext, i: int) -> Any:
    array = op.read(i)
    if op.require(TensorType.FLOAT32, TensorType.UINT8, i=i) is TensorType.FLOAT32:
        return lambda: array
    scale, zero_point = op.scale_and_zero_point(op.input(i))
    return lambda: (np.float32(scale) * (array.astype(np.int32) - zero_point)).astype(np.float32)


def decode(encodings: Array, anchors: Array, scales: tuple[float, float, float, float]) -> Array:
    """Return corners [B, 4] of centres and sizes relative to anchors, computed in float64 as LiteRT does."""
    wide, base = encodings.astype(np.float64), anchors.astype(np.float64)
    divisors = np.array(scales, np.float32).astype(np.float64)
    centres = (wide[:, :2] / divisors[:2] * base[:, 2:] + base[:, :2]).astype(np.float32)
    halves = (0.5 * np.exp(wide[:, 2:] / divisors[2:]) * base[:, 2:]).astype(np.float32)
    return np.concatenate([centres - halves, centres + halves], axis=1)


def suppress(boxes: Array, scores: Array, found: Settings, limit: int) -> Array:
    """Return the indices of the kept boxes, best first; each drops the later ones that overlap it too much.

    Among equal scores the lower index comes first, as in LiteRT.
    """
    above = np.flatnonzero(scores >= np.float32(found.score_threshold))
    order = above[np.argsort(-scores[above], kind="stable")]
    low, high = boxes[order, :2], boxes[order, 2:]
    active = np.ones(len(order), bool)
    kept: list[int] = []
    for i in range(len(order)):
        if len(kept) == limit:
            break
        if active[i]:
            kept.append(int(order[i]))
            overlap = overlaps(low, high, i, slice(i + 1, None))
            active[i + 1 :] &= overlap <= np.float32(found.iou_threshold)
    return np.array(kept, np.int64)


def _fast(boxes: Array, scores: Array, found: Settings) -> tuple[Array, Array, Array]:
    classes = np.argsort(-scores, axis=1, kind="stable")[:, : min(found.max_classes, found.num_classes)]
    best = np.take_along_axis(scores, classes, axis=1)
    kept = suppress(boxes, best[:, 0], found, found.max_detections)
    chosen = np.repeat(kept, classes.shape[1])
    return chosen, classes[kept].reshape(-1), best[kept].reshape(-1)


def _regular(boxes: Array, scores: Array, found: Settings) -> tuple[Array, Array, Array]:
    kept = [suppress(boxes, scores[:, c], found, found.per_class) for c in range(found.num_classes)]
    chosen = np.concatenate(kept)
    classes = np.repeat(np.arange(found.num_classes), [len(k) for k in kept])
    values = scores[chosen, classes]
    order = np.argsort(-values, kind="stable")[: found.max_detections]
    return chosen[order], classes[order], values[order]
