"""NON_MAX_SUPPRESSION_V4 and V5 (`reference/non_max_suppression.h`); V5 may lower scores as well."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from runtime.ops.support import Array, Kernel, Op, OpContext, Shape, TensorType, operator


@dataclass(frozen=True, slots=True)
class _Limits:
    most: int
    overlap: np.float32
    score: np.float32
    sigma: np.float32


def _sizes(op: OpContext) -> int:
    boxes, scores, sizes = op.input(0).shape, op.input(1).shape, op.integers(2, "max output size")
    if len(boxes) != 2 or boxes[1] != 4 or scores != boxes[:1] or len(sizes) != 1 or sizes[0] < 0:
        raise op.error(f"boxes {list(boxes)}, scores {list(scores)}, at most {list(sizes)}")
    return sizes[0]


def suppressed_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shapes of the indices, as many as input 2 allows, and of their number."""
    return ((_sizes(op),), ())


def softly_suppressed_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shapes of indices and scores, as many as input 2 allows, and of their number."""
    size = _sizes(op)
    return ((size,), (size,), ())


def _limits(op: OpContext, most: int) -> _Limits:
    values = [np.float32(op.read(i).reshape(-1)[0]) for i in range(3, len(op.inputs))]
    sigma = values[2] if len(values) > 2 else np.float32(0)
    return _Limits(most, values[0], values[1], sigma)


def _run(op: OpContext, indices: Array, scores: Array | None, count: Array) -> Kernel:
    """Return the kernel for these outputs; thresholds are read in every run, as they may be computed."""
    for i in range(3, len(op.inputs)):
        op.require(TensorType.FLOAT32, i=i)
    boxes, given = op.read(0), op.read(1)

    def run() -> None:
        chosen, kept = suppress(boxes, given, _limits(op, indices.size))
        indices.fill(0)
        indices[: len(chosen)] = chosen
        if scores is not None:
            scores.fill(0)
            scores[: len(kept)] = kept
        count[...] = len(chosen)

    return run


@operator(Op.NON_MAX_SUPPRESSION_V4, infer=suppressed_shape, types=(TensorType.FLOAT32,))
def non_max_suppression(op: OpContext) -> Kernel:
    """NON_MAX_SUPPRESSION_V4 of boxes [n, 4], two corners (y, x) in any order, and scores [n].

    The outputs are the indices of the kept boxes, best first and padded with zeros, and how many there are.
    """
    return _run(op, op.write(0), None, op.write(1))


@operator(Op.NON_MAX_SUPPRESSION_V5, infer=softly_suppressed_shape, types=(TensorType.FLOAT32,))
def soft_non_max_suppression(op: OpContext) -> Kernel:
    """NON_MAX_SUPPRESSION_V5: V4 with the scores of the kept boxes as one more output.

    A positive sigma also multiplies the score of a box by exp(-overlap^2 / (2 sigma)) for every better box
    that it overlaps by less than the threshold.
    """
    return _run(op, op.write(0), op.write(1), op.write(2))


def suppress(boxes: Array, scores: Array, limits: _Limits) -> tuple[list[int], list[np.float32]]:
    """Return the indices and scores of the chosen boxes.

    A chosen box goes back into the queue and there meets itself, so that one without area, which overlaps
    nothing, may be chosen again, as in LiteRT.
    """
    heap = MaxHeap()
    for i in np.flatnonzero(scores > limits.score):
        heap.push(scores[i], (int(i), 0))
    most = min(len(heap), limits.most)
    chosen: list[int] = []
    kept: list[np.float32] = []
    with np.errstate(all="ignore"):
        low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
        while len(chosen) < most and len(heap):
            given, (index, begin) = heap.pop()
            score, dropped = _lowered(given, overlaps(low, high, index, chosen[begin:][::-1]), limits)
            if dropped:
                continue
            begin = len(chosen)
            # A score that was lowered may be below others now: the box waits in the queue for its new place,
            # and remembers in `begin` which of the chosen ones it has met.
            if score == given:
                chosen.append(index)
                kept.append(score)
            if score > limits.score:
                heap.push(score, (index, begin))
    return chosen, kept


def _lowered(score: np.float32, overlaps: Array, limits: _Limits) -> tuple[np.float32, bool]:
    """Return the score after meeting the chosen boxes, the last first, and whether one suppresses it."""
    scale = np.float32(-0.5) / limits.sigma if limits.sigma > 0 else np.float32(0)
    for overlap in overlaps:
        if overlap >= limits.overlap:
            return score, True
        if limits.sigma > 0:
            score = np.float32(score * np.exp(scale * overlap * overlap))
        if score <= limits.score:
            break
    return score, False


def overlaps(low: Array, high: Array, index: int, others: slice | list[int]) -> Array:
    """Return the intersection over union of one box with others, float32; 0 where either has no area."""
    size, sizes = high[index] - low[index], high[others] - low[others]
    area, areas = size[0] * size[1], sizes[:, 0] * sizes[:, 1]
    shared = np.minimum(high[index], high[others]) - np.maximum(low[index], low[others])
    common = np.prod(np.maximum(shared, np.float32(0)), axis=1)
    # 0 / 0 where both have no area; the last line replaces it.
    ratio = common / (area + areas - common)
    return np.where((area <= 0) | (areas <= 0), np.float32(0), ratio)


class MaxHeap:
    """Items by key, the largest first; the order among equal keys is that of C++'s `std::priority_queue`.

    Detections often have equal scores; which of them comes first shows in the results.
    """

    def __init__(self) -> None:
        self._items: list[tuple[Any, Any]] = []

    def __len__(self) -> int:
        return len(self._items)

    def push(self, key: Any, item: Any) -> None:
        """Insert an item; it rises past smaller keys only."""
        self._items.append((key, item))
        self._rise(len(self._items) - 1, (key, item))

    def pop(self) -> tuple[Any, Any]:
        """Remove the largest key with its item: the hole sinks to a leaf, the last item rises from there.

        The textbook's way, to let the last item sink from the top, orders equal keys otherwise.
        """
        items = self._items
        top, last = items[0], items.pop()
        if not items:
            return top
        hole, size = 0, len(items)
        while 2 * hole + 2 < size:
            child = 2 * hole + 2
            if items[child][0] < items[child - 1][0]:
                child -= 1
            items[hole] = items[child]
            hole = child
        if 2 * hole + 2 == size:
            items[hole] = items[size - 1]
            hole = size - 1
        self._rise(hole, last)
        return top

    def _rise(self, hole: int, entry: tuple[Any, Any]) -> None:
        items = self._items
        while hole and items[(hole - 1) // 2][0] < entry[0]:
            items[hole] = items[(hole - 1) // 2]
            hole = (hole - 1) // 2
        items[hole] = entry
