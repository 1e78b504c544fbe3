"""PosenetDecoderOp: people that were drawn into its maps are found again, by the definition's layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from runtime.api.interpreter import Interpreter
from runtime.errors import ModelError
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Builder, per_tensor
from tests.runtime.ops.cases import ours

SIZE, STRIDE, MOST = (24, 20), 16, 4
OPTIONS: dict[str, Any] = {
    "max_detections": MOST,
    "score_threshold": 0.5,
    "stride": STRIDE,
    "nms_radius": 20.0,
}
CHAINS = ((0, 1, 3), (0, 2, 4), (0, 5, 7, 9), (5, 11, 13, 15), (0, 6, 8, 10), (6, 12, 14, 16))
EDGES = [(0, 1), (1, 3), (0, 2), (2, 4), (0, 5), (5, 7), (7, 9), (5, 11), (11, 13), (13, 15)]
EDGES += [(a + 1 if a else 0, b + 1) for a, b in EDGES[4:]]
LEAVES = [chain[-1] for chain in CHAINS]
SCALE, ZERO = (0.05, 0.2, 3.2), 128
"""Quantisation of heat maps, short and mid offsets."""


def model(kind: Any = np.float32, inputs: int = 3, size: tuple[int, int] = SIZE, **changed: Any) -> bytes:
    b = Builder()
    channels = (17, 34, 64, 34)[:inputs]
    scales = [None] * 4 if kind is np.float32 else [per_tensor(s, ZERO) for s in SCALE]
    maps = [b.input(kind, (1, *size, n), q) for n, q in zip(channels, scales, strict=False)]
    made = [b.tensor(np.float32) for _ in range(inputs + 1)]
    options = bytes(flexbuffers.Dumps({**OPTIONS, **changed}))
    b.operator(Op.CUSTOM, maps, made, custom_code="PosenetDecoderOp", custom_options=options)
    return b.write(made)


def people(seed: int = 2) -> np.ndarray:
    """Two poses of 17 places (y, x): the second shares its leaves with the first, and no other neighbours."""
    rng, grid = np.random.default_rng(seed), (SIZE[0] // 3, (SIZE[1] - 2) // 3)
    places = rng.choice(grid[0] * grid[1], 17, replace=False)
    cells = np.stack(np.unravel_index(places, grid), axis=-1)
    both = np.stack([cells, (cells + np.array((3, 2))) % grid])
    poses = both * 3 + rng.uniform(0.25, 0.75, (2, 17, 2))
    poses[1, LEAVES] = poses[0, LEAVES]
    return poses.astype(np.float32)


def drawn(poses: np.ndarray, logits: Sequence[float]) -> list[np.ndarray]:
    """Return heat maps, short and mid offsets: the later pose is drawn first, so that the first one wins."""
    heat = np.full((*SIZE, 17), -5, np.float32)
    short, mid = np.zeros((*SIZE, 34), np.float32), np.zeros((*SIZE, 64), np.float32)
    directed = [*EDGES, *((b, a) for a, b in EDGES)]
    for pose, logit in reversed(list(zip(poses, logits, strict=True))):
        for k, place in enumerate(pose):
            top, left = np.floor(place).astype(int)
            for cell in np.ndindex(2, 2):
                at = (top + cell[0], left + cell[1])
                heat[*at, k] = logit
                short[*at, [k, k + 17]] = place - at
                for edge, (parent, child) in enumerate(directed):
                    if parent == k:
                        # Forward y, forward x, backward y, backward x; the first backward edge is read as
                        # if it were the 17th forward one.
                        first = edge + 16 if edge > 16 else edge
                        mid[*at, [first, first + 16]] = pose[child] - place
    return [heat[None], short[None] * STRIDE, mid[None] * STRIDE]


def run(file: bytes, maps: Sequence[np.ndarray]) -> list[np.ndarray]:
    interpreter = Interpreter(model_content=file)
    interpreter.allocate_tensors()
    for details, value in zip(interpreter.get_input_details(), maps, strict=True):
        interpreter.set_tensor(details["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


def sigmoid(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))


def test_people_are_found_where_they_were_drawn():
    """Keypoints that the second one shares with the first, which is surer, count as zero in its score."""
    poses = people()
    keypoints, scores, totals, count = run(model(), drawn(poses, (3, 2)))
    assert count.tolist() == [2]
    np.testing.assert_allclose(keypoints[0, :2], poses * STRIDE, atol=0.01)
    np.testing.assert_allclose(scores[0, 0], sigmoid(3), rtol=1e-5)
    own = np.where(np.isin(np.arange(17), LEAVES), sigmoid(3), sigmoid(2))
    np.testing.assert_allclose(scores[0, 1], own, rtol=1e-5)
    expected = [sigmoid(3), sigmoid(2) * (17 - len(LEAVES)) / 17, 0, 0]
    np.testing.assert_allclose(totals[0], expected, rtol=1e-5)
    assert not keypoints[0, 2:].any()


def test_options_bound_what_is_found():
    maps = drawn(people(), (3, 2))
    assert run(model(max_detections=1), maps)[3].tolist() == [1]
    assert run(model(score_threshold=0.6), maps)[3].tolist() == [1], "the second one's score is 0.57"
    assert run(model(score_threshold=0.97), maps)[3].tolist() == [0]


def test_maps_of_uint8_stand_for_real_numbers():
    poses = people()
    maps = drawn(poses, (3, 2))
    levels = [
        np.clip(np.round(m / s) + ZERO, 0, 255).astype(np.uint8) for m, s in zip(maps, SCALE, strict=True)
    ]
    keypoints, scores, _, count = run(model(np.uint8), levels)
    assert count.tolist() == [2]
    np.testing.assert_allclose(keypoints[0, :2], poses * STRIDE, atol=1)
    np.testing.assert_allclose(scores[0, 0], sigmoid(3), rtol=1e-5)


def test_each_cell_belongs_to_the_nearest_pose():
    """Long offsets of zero lead nowhere: a cell's own place is compared with all keypoints."""
    poses = people()
    maps = [*drawn(poses, (3, 2)), np.zeros((1, *SIZE, 34), np.float32)]
    *_, count, masks = run(model(inputs=4), maps)
    cells = np.stack(np.indices(SIZE), axis=-1)[None, :, :, None]
    nearest = ((cells - poses[:, None, None]) ** 2).sum(axis=(3, 4)).argmin(axis=0)
    assert count.tolist() == [2]
    np.testing.assert_array_equal(masks[0, :2], [nearest == 0, nearest == 1])
    assert not masks[0, 2:].any()


def test_maps_without_numbers_end():
    for value in (np.nan, np.inf, -np.inf):
        maps = [np.full((1, 2, 3, n), value, np.float32) for n in (17, 34, 64)]
        outputs = run(model(size=(2, 3)), maps)
        assert 0 <= outputs[3][0] <= MOST


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"max_detections": 0}, "max_detections 0 and stride 16 of its options are out of range"),
        ({"max_detections": 1 << 20}, "are out of range"),
        ({"stride": 0}, "max_detections 4 and stride 0"),
        ({"nms_radius": "far"}, "option nms_radius is 'far', not a number"),
        ({"inputs": 2}, "2 inputs and 3 outputs; 3 and 4, or 4 and 5, are needed"),
    ],
)
def test_wrong_options_and_inputs_are_refused(changed, text):
    with pytest.raises(ModelError, match=text):
        Interpreter(model_content=model(**changed)).allocate_tensors()


def test_a_map_of_another_shape_is_refused():
    b = Builder()
    maps = [b.input(np.float32, (1, *SIZE, n)) for n in (17, 34, 63)]
    made = [b.tensor(np.float32) for _ in range(4)]
    options = bytes(flexbuffers.Dumps(OPTIONS))
    b.operator(Op.CUSTOM, maps, made, custom_code="PosenetDecoderOp", custom_options=options)
    with pytest.raises(ModelError, match=r"map 2 has shape \[1, 24, 20, 63\], not \[1, H, W, 64\]"):
        ours(b.write(made))
