"""A real face detector with LiteRT's post-processing, and pictures with the place of each face."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flatbuffers import flexbuffers
from PIL import Image

from runtime.model.graph import Operator, Tensor
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import TensorType
from runtime.model.writer import write_model
from tests.models.collection import data_folder, real_model

SIDE = 128
POST_PROCESSING: dict[str, Any] = {
    "max_detections": 10, "max_classes_per_detection": 1, "detections_per_class": 10,
    "use_regular_nms": False, "nms_score_threshold": 0.1, "nms_iou_threshold": 0.3, "num_classes": 1,
    "y_scale": float(SIDE), "x_scale": float(SIDE), "h_scale": 1.0, "w_scale": 1.0,
}  # fmt: skip


def anchors() -> np.ndarray:
    """float32 [896, 4]: centre and size of each; 2 in each of 16x16 places, 6 in each of 8x8."""
    rows = []
    for places, each in ((16, 2), (8, 6)):
        centres = (np.arange(places) + 0.5) / places
        y, x = np.meshgrid(centres, centres, indexing="ij")
        rows.append(np.repeat(np.stack([y, x], -1).reshape(-1, 2), each, axis=0))
    return np.concatenate([np.concatenate(rows), np.ones((896, 2))], 1).astype(np.float32)


def face_detector() -> bytes:
    """Return MediaPipe's short-range face detector, whose boxes the usual post-processing decodes.

    The network gives x, y, width and height in pixels; the post-processing wants y, x and the logarithms of
    height and width.
    """
    model = read_model(real_model("mp_face_detection_short"))
    graph = model.subgraphs[0]
    tensors, operators = list(graph.tensors), list(graph.operators)

    def tensor(shape: tuple[int, ...], value: np.ndarray | None = None) -> int:
        kind = TensorType.INT32 if value is not None and value.dtype == np.int32 else TensorType.FLOAT32
        data = None if value is None else memoryview(value.tobytes())
        tensors.append(Tensor(len(tensors), f"post_{len(tensors)}", kind, shape, data=data))
        return len(tensors) - 1

    def constant(value: np.ndarray) -> int:
        return tensor(value.shape, value)

    def operator(op: Op, inputs: list[int], shape: tuple[int, ...], **options: Any) -> int:
        made = tensor(shape)
        operators.append(Operator(len(operators), op, 1, tuple(inputs), (made,), options))
        return made

    def part(source: int, begin: int) -> int:
        first = constant(np.array([0, 0, begin], np.int32))
        size = constant(np.array([1, 896, 2], np.int32))
        return operator(Op.SLICE, [source, first, size], (1, 896, 2))

    boxes, logits = graph.outputs
    order = constant(np.array([1, 0, 3, 2], np.int32))
    turned = operator(Op.GATHER, [boxes, order], (1, 896, 4), axis=2)
    least = operator(Op.MAXIMUM, [part(turned, 2), constant(np.float32([1.0]))], (1, 896, 2))
    shares = operator(Op.MUL, [least, constant(np.float32([1 / SIDE]))], (1, 896, 2))
    sizes = operator(Op.LOG, [shares], (1, 896, 2))
    encodings = operator(Op.CONCATENATION, [part(turned, 0), sizes], (1, 896, 4), axis=2)
    scores = operator(Op.LOGISTIC, [logits], (1, 896, 1))
    found = tuple(tensor(shape) for shape in ((1, 10, 4), (1, 10), (1, 10), (1,)))
    operators.append(
        Operator(
            len(operators), Op.CUSTOM, 1, (encodings, scores, constant(anchors())), found,
            custom_code="TFLite_Detection_PostProcess",
            custom_options=bytes(flexbuffers.Dumps(POST_PROCESSING)),
        )
    )  # fmt: skip
    whole = replace(graph, tensors=tuple(tensors), operators=tuple(operators), outputs=found)
    return bytes(write_model(replace(model, subgraphs=(whole,), signatures=())))


def face_pictures(folder: Path, count: int) -> None:
    """Write pictures, each with a face at a place and a size of its own, and `instances.json`."""
    patches = np.load(data_folder("scikit-image") / "lfw_subset.npy")[:count]
    rng = np.random.default_rng(0)
    images, objects = [], []
    for number, patch in enumerate(patches):
        side = int(rng.integers(70, 100))
        left, top = (int(n) for n in rng.integers(0, 160 - side, 2))
        face = Image.fromarray((patch * 255).astype(np.uint8)).resize((side, side), Image.Resampling.BILINEAR)
        canvas = Image.new("RGB", (160, 160), (128, 128, 128))
        canvas.paste(face, (left, top))
        name = f"{number:03}.png"
        canvas.save(folder / name)
        images.append({"id": number, "file_name": name, "width": 160, "height": 160})
        box = [left + 0.1 * side, top + 0.15 * side, 0.8 * side, 0.8 * side]
        # A match with an object 0 is none for pycocotools.
        objects.append({"id": number + 1, "image_id": number, "category_id": 1, "bbox": box, "iscrowd": 0})
    made = {"images": images, "annotations": objects, "categories": [{"id": 1, "name": "face"}]}
    (folder / "instances.json").write_text(json.dumps(made))
