"""A detector with post-processing: right on the GPU delegate, and caught where it finds something else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from runtime.judge.agreement import Expected, Judgement, OutputFacts, judge_each, worst
from runtime.judge.kinds import output_kinds
from runtime.judge.rules import Arithmetic, rule_for
from runtime.measure.loading import Opener
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator as Op
from runtime.ops.support import registry
from runtime.tools.model_bisect.oracle import run
from runtime.tools.model_bisect.search import bisect
from tests.runtime.models import Builder
from tests.runtime.tools.in_worker import litert_runs

BOXES, CLASSES, SIDE = 64, 4, 8
NAME = "TFLite_Detection_PostProcess"
OPTIONS: dict[str, Any] = {
    "max_detections": 10, "max_classes_per_detection": 1, "detections_per_class": 10,
    "use_regular_nms": False, "nms_score_threshold": 0.05, "nms_iou_threshold": 0.5,
    "num_classes": CLASSES,
    "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
}  # fmt: skip
GPU = {"tuning": "none", "cache_dir": "", "cost_aware_partitioning": False}


def detector() -> bytes:
    """Build two convolutions on 8x8 pixels, an anchor at each, and the post-processing."""
    b, rng = Builder(), np.random.default_rng(2)
    x = b.input(np.float32, (1, SIDE, SIDE, 8))

    def head(channels: int, scale: float, bias: float) -> int:
        weights = b.constant(rng.normal(0, scale, (channels, 3, 3, 8)).astype(np.float32))
        y = b.tensor(np.float32, (1, SIDE, SIDE, channels))
        offset = b.constant(np.full(channels, bias, np.float32))
        b.operator(Op.CONV_2D, [x, weights, offset], [y], {"padding": 0, "stride_w": 1, "stride_h": 1})
        flat = b.tensor(np.float32, (1, BOXES, channels))
        b.operator(Op.RESHAPE, [y, b.constant(np.array([1, BOXES, channels], np.int32))], [flat])
        return flat

    encodings, logits = head(4, 0.2, 0.0), head(CLASSES + 1, 0.5, -4.0)
    scores = b.tensor(np.float32, (1, BOXES, CLASSES + 1))
    b.operator(Op.LOGISTIC, [logits], [scores])
    places = (np.stack(np.meshgrid(*[np.arange(SIDE)] * 2, indexing="ij"), -1).reshape(-1, 2) + 0.5) / SIDE
    anchors = np.concatenate([places, np.full((BOXES, 2), 0.3)], 1).astype(np.float32)
    made = [b.tensor(np.float32, shape) for shape in ((1, 10, 4), (1, 10), (1, 10), (1,))]
    b.operator(
        Op.CUSTOM,
        [encodings, scores, b.constant(anchors)],
        made,
        custom_code=NAME,
        custom_options=bytes(flexbuffers.Dumps(OPTIONS)),
    )
    return b.write(made)


MODEL = read_model(detector())
SETS = [np.random.default_rng(k).normal(size=(1, SIDE, SIDE, 8)).astype(np.float32) for k in range(2)]


def judged_on_gpu() -> Judgement:
    """Judge the delegate's outputs of both sets by LiteRT's, as a measurement does."""
    runs = [litert_runs(detector(), [x]) for x in SETS]
    with NamedTemporaryFile(suffix=".tflite") as file:
        file.write(detector())
        file.flush()
        outputs = [run(Opener.prepare("gpu", GPU), Path(file.name), [x])[0] for x in SETS]
    facts = [OutputFacts(MODEL.subgraphs[0].tensors[i].name) for i in MODEL.subgraphs[0].outputs]
    draws = {name: [one[name] for one in runs] for name in ("builtin", "moved")}
    expected = Expected([one["reference"] for one in runs], facts, draws, output_kinds(MODEL, {}))
    rule = rule_for(Arithmetic.FLOAT, integer_path=False, precision="fp32", draws=list(draws))
    return worst(judge_each(expected, outputs, rule))


Outputs = list[np.ndarray]


def swapped_classes(outputs: Outputs) -> None:
    """Answer by another table of classes."""
    outputs[1][:] = CLASSES - 1 - outputs[1]


def dropped_box(outputs: Outputs) -> None:
    """Lose the best detection."""
    for part in outputs[:3]:
        part[0, :-1] = part[0, 1:].copy()
    outputs[3][:] -= 1


def moved_box(outputs: Outputs) -> None:
    """Move the best box by 20 % of its width."""
    box = outputs[0][0, 0]
    box[[1, 3]] += 0.2 * (box[3] - box[1])


def break_detector(monkeypatch: pytest.MonkeyPatch, fault: Callable[[Outputs], None]) -> None:
    spec = registry.CUSTOM_SPECS[NAME]

    def prepare(op: Any) -> Callable[[], None]:
        run, outputs = spec.prepare(op), [op.write(i) for i in range(4)]

        def wrong() -> None:
            run()
            fault(outputs)

        return wrong

    monkeypatch.setitem(registry._CUSTOM, NAME, replace(spec, prepare=prepare))


def test_a_detector_passes_on_the_gpu_and_no_operator_is_named() -> None:
    found = judged_on_gpu()
    assert found.verdict == "pass", found.note
    assert found.matching is not None
    assert found.matching.matched >= 4
    assert (found.matching.missing, found.matching.added) == (0, 0)
    assert found.matching.mean_iou == pytest.approx(1.0, abs=1e-3)
    assert bisect(MODEL, SETS[:1], "gpu", GPU).suspects == ()


@pytest.mark.parametrize("fault", [swapped_classes, dropped_box, moved_box])
def test_a_wrong_detector_fails_and_its_operator_is_named(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[Outputs], None]
) -> None:
    break_detector(monkeypatch, fault)
    assert judged_on_gpu().verdict == "fail"
    found = bisect(MODEL, SETS[:1], "gpu", GPU)
    assert [one.operators for one in found.suspects] == [(5,)]
    assert MODEL.subgraphs[0].operators[5].name == NAME
