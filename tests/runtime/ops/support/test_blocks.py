"""Pieces of an array: together they are the array, each element once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import broadcastable_shapes

from runtime.ops.support.blocks import broadcast_blocks, channel_rows, flat_blocks


@given(st.integers(0, 300), st.integers(1, 50))
def test_flat_blocks_cover_every_element_once(size, elements):
    a, b = np.zeros(size), np.arange(size)
    for x, y in flat_blocks(a, b, elements=elements):
        assert x.size <= elements
        np.add(x, y, out=x)
    np.testing.assert_array_equal(a, b)


@given(
    st.lists(st.integers(1, 6), min_size=0, max_size=4)
    .map(tuple)
    .flatmap(lambda s: st.tuples(st.just(s), broadcastable_shapes(s, max_dims=len(s), max_side=6))),
    st.integers(1, 40),
)
def test_broadcast_blocks_add_like_numpy(shapes, elements):
    a = np.arange(np.prod(shapes[0], dtype=int)).reshape(shapes[0])
    b = np.arange(np.prod(shapes[1], dtype=int)).reshape(shapes[1]) * 1000
    out = np.zeros(np.broadcast_shapes(*shapes), int)
    for y, x, z in broadcast_blocks(out, a, b, elements=elements):
        np.add(y, x + z, out=y)
    np.testing.assert_array_equal(out, a + b)


@pytest.mark.parametrize(("shape", "rows"), [((2, 3, 4, 5), (6, 4)), ((5,), (1, 1)), ((7, 5), (1, 7))])
def test_channel_rows_count_pixels(shape, rows):
    assert channel_rows(shape) == rows
