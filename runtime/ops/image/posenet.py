"""Coral's custom operator PosenetDecoderOp: the poses of several people from the maps of a network.

Inputs [1, H, W, n], float32 or uint8: heat maps of 17 keypoints (log odds), short offsets (y of each
keypoint, then x), mid offsets of the 32 directed edges between keypoints, and optionally long offsets.
Outputs, float32, for M = `max_detections` poses, the best first: keypoints [1, M, 17, 2] (y, x in pixels),
their scores [1, M, 17], scores [1, M], count [1]; with long offsets a mask [1, M, H, W] for each pose. Behind
the count stand zeros. Formulas and constants are those of `coral/posenet/posenet_decoder.cc`; the method is
PersonLab's (https://arxiv.org/abs/1803.08225).
"""

import heapq
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from runtime.model.flexbuffer import number, read_map
from runtime.ops.support import Array, Kernel, OpContext, Shape, TensorType
from runtime.ops.support.registry import custom_operator
from runtime.ops.support.shapes import require_rank

KEYPOINTS = 17
"""Points of a person, as PoseNet was trained on (`kNumKeypoints`)."""

_FORWARD = (
    (0, 1), (1, 3), (0, 2), (2, 4), (0, 5), (5, 7), (7, 9), (5, 11), (11, 13), (13, 15), (0, 6), (6, 8),
    (8, 10), (6, 12), (12, 14), (14, 16),
)  # fmt: skip
"""The edges of the tree of keypoints, from the nose (0) outwards: eyes (1, 2), ears, shoulders, elbows,
wrists, hips, knees, ankles (15, 16), left before right."""

_EDGES = (*_FORWARD, *((b, a) for a, b in _FORWARD))

_CHANNELS = (KEYPOINTS, 2 * KEYPOINTS, 2 * len(_EDGES), 2 * KEYPOINTS)
"""Channels of the maps."""

_REFINEMENTS, _MASK_REFINEMENTS = 5, 2
"""Steps by short and by long offsets behind the first one (`posenet_decoder_op.cc`)."""

MAX_POSES = 1 << 12
"""Most poses that the options may ask for. Chosen: far above what is asked for in published models, 10; each
is compared with all others."""


@dataclass(frozen=True, slots=True)
class _Settings:
    """The options: `radius` is in cells of the maps, each of `stride` pixels."""

    poses: int
    threshold: np.float32
    stride: int
    radius: np.float32


def _settings(op: OpContext) -> _Settings:
    options = read_map(op.operator.custom_options)
    poses, stride = (int(number(options, name)) for name in ("max_detections", "stride"))
    if not 0 < poses <= MAX_POSES or stride < 1:
        raise op.error(f"max_detections {poses} and stride {stride} of its options are out of range")
    threshold, radius = (np.float32(number(options, name)) for name in ("score_threshold", "nms_radius"))
    return _Settings(poses, threshold, stride, radius / np.float32(stride))


def _shapes(op: OpContext) -> tuple[Shape, ...]:
    poses, given, made = _settings(op).poses, len(op.inputs), len(op.outputs)
    if (given, made) not in ((3, 4), (4, 5)):
        raise op.error(f"{given} inputs and {made} outputs; 3 and 4, or 4 and 5, are needed")
    one, height, width, _ = require_rank(op, 0, 4)
    for i, channels in enumerate(_CHANNELS[:given]):
        if one != 1 or op.input(i).shape != (1, height, width, channels):
            raise op.error(f"map {i} has shape {list(op.input(i).shape)}, not [1, H, W, {channels}]")
    masks = ((1, poses, height, width),) if given == 4 else ()
    return ((1, poses, KEYPOINTS, 2), (1, poses, KEYPOINTS), (1, poses), (1,), *masks)


@custom_operator("PosenetDecoderOp", infer=_shapes)
def posenet_decoder(op: OpContext) -> Kernel:
    """PosenetDecoderOp: poses grown from the best keypoints, suppressed where they repeat each other."""
    found = _settings(op)
    reads = [_reader(op, i, 1 if i == 0 else 1 / found.stride) for i in range(len(op.inputs))]
    outputs = [op.write(i) for i in range(len(op.outputs))]

    def run() -> None:
        maps = [read() for read in reads]
        for output in outputs:
            output.fill(0)
        poses, scores, totals = _decoded(maps[0], maps[1], maps[2], found)
        kept = len(totals)
        outputs[0][0, :kept] = poses * found.stride
        outputs[1][0, :kept] = scores
        outputs[2][0, :kept] = totals
        outputs[3][0] = kept
        if len(maps) > 3 and kept:
            nearest = _nearest(maps[3], outputs[0][0, :kept], found.stride)
            outputs[4][0, :kept] = np.arange(kept)[:, None, None] == nearest

    return run


def _reader(op: OpContext, i: int, factor: float) -> Any:
    """Return a function that reads map `i` as real numbers [H, W, n] times `factor`."""
    array, scale, zero = op.read(i)[0], np.float32(1), 0
    if op.require(TensorType.FLOAT32, TensorType.UINT8, i=i) is TensorType.UINT8:
        real, zero = op.scale_and_zero_point(op.input(i))
        scale = np.float32(real)
    return lambda: (array.astype(np.float32) - np.float32(zero)) * (scale * np.float32(factor))


def _decoded(heat: Array, short: Array, mid: Array, found: _Settings) -> tuple[Array, Array, Array]:
    """Return keypoints [n, 17, 2] in cells, their scores [n, 17] and poses' scores [n], the best first."""
    poses = np.zeros((found.poses, KEYPOINTS, 2), np.float32)
    scores = np.zeros((found.poses, KEYPOINTS), np.float32)
    square, taken = found.radius * found.radius, 0
    for keypoint, place in _roots(heat, short, found.threshold):
        if taken == found.poses:
            break
        away = poses[:taken, keypoint] - place
        if ((away * away).sum(axis=1) <= square).any():
            continue
        logits = _grow(heat, short, mid, keypoint, place, poses[taken])
        scores[taken] = 1 / (1 + np.exp(-logits))
        # The next root overwrites a pose that stays below the threshold.
        taken += bool(scores[taken].mean(dtype=np.float32) >= found.threshold)
    poses, scores = poses[:taken], scores[:taken]
    totals = _rescored(poses, scores, square)
    order = np.argsort(-totals, kind="stable")
    order = order[totals[order] >= found.threshold]
    return poses[order], scores[order], totals[order]


def _roots(heat: Array, short: Array, threshold: np.float32) -> list[tuple[int, Array]]:
    """Return the keypoints and places (y, x) of local maxima above the threshold, the best first."""
    # The heat maps hold log odds: so is the threshold, and no score needs a sigmoid here.
    least = -np.log(1 / (np.float64(threshold) + 1e-6) - 1)
    edged = np.pad(heat, ((1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    around = np.lib.stride_tricks.sliding_window_view(edged, (3, 3), axis=(0, 1)).max(axis=(3, 4))
    rows, columns, keypoints = np.nonzero((heat >= np.float32(least)) & (heat >= around))
    offsets = np.stack([short[rows, columns, keypoints], short[rows, columns, keypoints + KEYPOINTS]], axis=1)
    places = _within(np.stack([rows, columns], axis=1).astype(np.float32) + offsets, heat)
    order = np.argsort(-heat[rows, columns, keypoints], kind="stable")
    return [(int(keypoints[i]), places[i]) for i in order]


def _grow(heat: Array, short: Array, mid: Array, root: int, place: Array, pose: Array) -> Array:
    """Write the places of all keypoints of the pose around a root; return their log odds [17].

    The keypoint with the best score goes first, and passes its place along its edges.
    """
    logits, serial = np.zeros(KEYPOINTS, np.float32), count()
    done = np.zeros(KEYPOINTS, bool)
    # The serial number decides between equal scores: comparing the arrays behind it would raise.
    queue = [(-_sample(heat, place, [root])[0], next(serial), root, place)]
    while queue:
        score, _, keypoint, here = heapq.heappop(queue)
        if done[keypoint]:
            continue
        pose[keypoint], logits[keypoint], done[keypoint] = here, -score, True
        for edge, (parent, child) in enumerate(_EDGES):
            if parent == keypoint and not done[child]:
                there = _follow(short, mid, here, edge, child)
                heapq.heappush(queue, (-_sample(heat, there, [child])[0], next(serial), child, there))
    return logits


def _follow(short: Array, mid: Array, here: Array, edge: int, child: int) -> Array:
    """Return where an edge leads, by its mid offset and then by the child's short ones."""
    size = len(_FORWARD)
    # As in the original, the first backward edge reads the x of the first forward one as its y.
    first = edge + size if edge > size else edge
    there = _within(here + _sample(mid, here, [first, first + size]), mid)
    for _ in range(_REFINEMENTS):
        there = _within(there + _sample(short, there, [child, child + KEYPOINTS]), short)
    return there


def _within(places: Array, maps: Array) -> Array:
    """Return places in the map; of one that is no number the first cell, so that none leads outside."""
    return np.asarray(np.clip(np.nan_to_num(places), 0, np.array(maps.shape[:2], np.float32) - 1))


def _sample(maps: Array, places: Array, channels: list[int]) -> Array:
    """Return some channels [..., n] between the cells around places (y, x) [..., 2] within the map."""
    first, last = np.floor(places), np.ceil(places)
    down, across = np.moveaxis((places - first)[..., None], -2, 0)
    (top, left), (bottom, right) = (np.moveaxis(v.astype(np.intp)[..., None], -2, 0) for v in (first, last))
    upper = (1 - across) * maps[top, left, channels] + across * maps[top, right, channels]
    lower = (1 - across) * maps[bottom, left, channels] + across * maps[bottom, right, channels]
    return np.asarray((1 - down) * upper + down * lower)


def _rescored(poses: Array, scores: Array, square: np.float32) -> Array:
    """Return each pose's mean score, in which a keypoint close to that of a better pose counts as zero."""
    order = np.argsort(-scores.mean(axis=1), kind="stable")
    totals = np.zeros(len(order), np.float32)
    for rank, index in enumerate(order):
        away = poses[order[:rank]] - poses[index]
        is_hidden = ((away * away).sum(axis=2) <= square).any(axis=0)
        totals[index] = np.where(is_hidden, np.float32(0), scores[index]).sum() / np.float32(KEYPOINTS)
    return totals


def _nearest(long: Array, poses: Array, stride: int) -> Array:
    """Return for each cell [H, W] the pose whose keypoints lie nearest to where its long offsets lead."""
    cells = np.moveaxis(np.indices(long.shape[:2], np.float32), 0, -1)
    distances = np.zeros((len(poses), *long.shape[:2]), np.float32)
    for k in range(KEYPOINTS):
        places = cells
        for _ in range(_MASK_REFINEMENTS + 1):
            places = _within(places + _sample(long, places, [k, k + KEYPOINTS]), long)
        away = poses[:, None, None, k] - places * np.float32(stride)
        distances += (away * away).sum(axis=-1)
    return np.asarray(distances.argmin(axis=0))
