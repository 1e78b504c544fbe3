"""The arena planner: what lives at once never shares memory, and little is wasted. Both backends use it."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.common.arena import Lifetime, aligned, assign

ALIGNMENT = 64
STEPS = range(-1, 32)

lifetimes = st.dictionaries(
    st.integers(0, 60),
    st.builds(
        lambda size, first, length: Lifetime(size, first, first + length),
        st.integers(0, 5000),
        st.integers(-1, 20),
        st.integers(0, 8),
    ),
    max_size=25,
)


def peak(lives: dict[int, Lifetime], alignment: int) -> int:
    """Most that lives at one step: no plan can do with less."""
    alive = ([life for life in lives.values() if life.first <= step <= life.last] for step in STEPS)
    return max(sum(aligned(life.size, alignment) for life in now) for now in alive)


@given(lifetimes)
def test_buffers_that_live_at_once_share_no_byte(lives):
    arena = assign(lives, ALIGNMENT)
    for a, b in combinations(lives, 2):
        if lives[a].first <= lives[b].last and lives[b].first <= lives[a].last:
            first, second = sorted((a, b), key=lambda i: arena.offsets[i])
            assert arena.offsets[first] + max(lives[first].size, 1) <= arena.offsets[second]


@pytest.mark.parametrize("alignment", [1, 16, 64])
@given(lives=lifetimes)
def test_the_arena_holds_every_buffer_aligned(lives, alignment):
    arena = assign(lives, alignment)
    assert set(arena.offsets) == set(lives)
    for index, offset in arena.offsets.items():
        assert offset % alignment == 0
        assert 0 <= offset <= offset + lives[index].size <= arena.size


@pytest.mark.parametrize("alignment", [1, 16, 64])
@given(lives=lifetimes)
def test_the_arena_is_at_least_the_peak_and_at_most_no_sharing(lives, alignment):
    unshared = sum(aligned(life.size, alignment) for life in lives.values())
    assert peak(lives, alignment) <= assign(lives, alignment).size <= unshared


@given(lifetimes)
def test_the_caller_s_order_decides_between_buffers_of_one_size(lives):
    same = {key: Lifetime(640, life.first, life.last) for key, life in lives.items()}
    first = next(iter(same), None)
    assert first is None or assign(same, ALIGNMENT).offsets[first] == 0


def test_a_chain_needs_two_buffers():
    chain = {i: Lifetime(1024, i, i + 1) for i in range(20)}
    assert assign(chain, ALIGNMENT).size == 2048


def test_buffers_that_never_meet_share_memory():
    apart = {"a": Lifetime(64, 0, 1), ("b", 0): Lifetime(64, 2, 3), "c": Lifetime(64, 4, 5)}
    assert assign(apart, 16).size == 64


@pytest.mark.slow
def test_a_long_graph_is_planned_in_time_that_grows_with_its_length():
    """Comparing every pair of its 200,000 buffers would take hours."""
    chain = {i: Lifetime(1 + i % 1000, i, i + 1 + i % 3) for i in range(200_000)}
    arena = assign({**chain, 200_000: Lifetime(64, -1, 200_002)}, ALIGNMENT)
    assert arena.size < 8 * 1024 + 64
