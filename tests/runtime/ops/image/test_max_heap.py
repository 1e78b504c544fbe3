"""The heap against a count by hand: what comes out is sorted; equal keys come as from C++'s heap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.ops.image.max_heap import MaxHeap


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
