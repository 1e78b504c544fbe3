"""NON_MAX_SUPPRESSION_V4 and _V5 against LiteRT's reference kernels; their heap against a count by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.model.schema import BuiltinOperator as Op
from runtime.ops.image.non_max_suppression import MaxHeap
from tests.runtime.models import Arg, Out, const
from tests.runtime.ops.cases import CPU, Case, case, check


def boxes(count, seed, decimals=None) -> tuple[Arg, Arg]:
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 1, (count, 2))
    sizes = rng.uniform(-0.1, 0.5, (count, 2))
    scores = rng.uniform(0, 1, count)
    scores = scores if decimals is None else scores.round(decimals)
    return Arg(np.hstack([corners, corners + sizes]).astype(np.float32)), Arg(scores.astype(np.float32))


def suppression(name, count, most, overlap, score, sigma=None, decimals=None, seed=0) -> Case:
    thresholds = [const(v) for v in (overlap, score) + (() if sigma is None else (sigma,))]
    outs = [Out(np.int32), *([] if sigma is None else [Out()]), Out(np.int32)]
    opcode = Op.NON_MAX_SUPPRESSION_V4 if sigma is None else Op.NON_MAX_SUPPRESSION_V5
    return case(name, opcode, [*boxes(count, seed, decimals), const(most, np.int32), *thresholds], outs)


SUPPRESSIONS = [
    suppression("few", 20, 5, 0.5, 0.1),
    suppression("padded", 20, 40, 0.2, 0.4),
    suppression("none", 10, 4, 0.5, 2.0),
    suppression("above_one", 10, 12, 1.5, 0.2),
    suppression("equal_scores", 60, 60, 0.3, 0.0, decimals=1, seed=4),
    suppression("soft", 40, 20, 1.0, 0.05, sigma=0.5, seed=2),
    suppression("soft_and_hard", 40, 40, 0.6, 0.1, sigma=0.2, seed=3),
    suppression("soft_off", 30, 10, 0.5, 0.1, sigma=0.0, decimals=1, seed=5),
]


@pytest.mark.parametrize("case", SUPPRESSIONS, ids=str)
def test_suppression_matches_litert(case):
    check(case, CPU)


def drained(heap: MaxHeap) -> list[tuple[int, str]]:
    return [heap.pop() for _ in range(len(heap))]


@given(st.lists(st.integers(-5, 5)))
def test_items_come_out_by_key_and_none_is_lost(keys):
    heap = MaxHeap()
    for i, key in enumerate(keys):
        heap.push(key, i)
    found = drained(heap)
    assert [key for key, _ in found] == sorted(keys, reverse=True)
    assert sorted(item for _, item in found) == list(range(len(keys)))


@pytest.mark.parametrize(
    ("items", "keys", "order"),
    [("abcde", [1] * 5, "acebd"), ("abcdefghij", [1, 2] * 5, "bfdjhgceia")],
)
def test_equal_keys_come_out_as_from_a_priority_queue_of_libstdcpp(items, keys, order):
    """The orders are those of `std::priority_queue` of GCC's library, run on the same pushes."""
    heap = MaxHeap()
    for item, key in zip(items, keys, strict=True):
        heap.push(key, item)
    assert "".join(item for _, item in drained(heap)) == order


def test_an_item_may_come_in_between():
    heap = MaxHeap()
    for key in (3, 9, 4):
        heap.push(key, str(key))
    assert heap.pop() == (9, "9")
    heap.push(5, "5")
    assert drained(heap) == [(5, "5"), (4, "4"), (3, "3")]
