"""Memory of a plan: what lives at once never shares a byte, and little is wasted."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from runtime.plan.arena import ALIGNMENT, Lifetime, assign

lifetimes = st.dictionaries(
    st.integers(0, 60),
    st.builds(
        lambda size, first, length: Lifetime(size, first, first + length),
        st.integers(0, 5000),
        st.integers(0, 20),
        st.integers(0, 6),
    ),
    max_size=25,
)


@given(lifetimes)
def test_tensors_that_live_at_once_share_no_byte(lives):
    arena = assign(lives)
    for a, b in combinations(lives, 2):
        if lives[a].first <= lives[b].last and lives[b].first <= lives[a].last:
            first, second = sorted((a, b), key=lambda i: arena.offsets[i])
            assert arena.offsets[first] + lives[first].size <= arena.offsets[second]


@given(lifetimes)
def test_the_arena_holds_every_tensor_aligned(lives):
    arena = assign(lives)
    assert set(arena.offsets) == set(lives)
    for index, offset in arena.offsets.items():
        assert offset % ALIGNMENT == 0
        assert 0 <= offset <= offset + lives[index].size <= arena.size


@given(lifetimes)
def test_the_arena_is_no_larger_than_no_sharing(lives):
    padded = sum(-(-max(life.size, 1) // ALIGNMENT) * ALIGNMENT for life in lives.values())
    assert assign(lives).size <= padded


def test_a_chain_needs_two_buffers():
    chain = {i: Lifetime(1024, i, i + 1) for i in range(20)}
    assert assign(chain).size == 2048


def test_a_long_graph_is_planned_in_time_that_grows_with_its_length():
    """Comparing every pair of its 200,000 tensors would take hours."""
    chain = {i: Lifetime(1 + i % 1000, i, i + 1 + i % 3) for i in range(200_000)}
    arena = assign({**chain, 200_000: Lifetime(64, -1, 200_002)})
    assert arena.size < 8 * 1024 + 64
