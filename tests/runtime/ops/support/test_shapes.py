"""Shape arithmetic against numpy, and against a count of windows by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

from runtime.errors import ShapeError
from runtime.model.schema import Padding
from runtime.ops.support.shapes import axis_index, broadcast, image_shape, require_rank, reshaped, window
from tests.runtime.ops.contexts import context, shaped

OP = context([shaped(1, 4, 5, 2)])


@given(mutually_broadcastable_shapes(num_shapes=3, max_dims=4, max_side=4, min_side=0))
def test_shapes_broadcast_as_numpy_has_it(shapes):
    assert broadcast(OP, *shapes.input_shapes) == np.broadcast_shapes(*shapes.input_shapes)


def test_shapes_that_differ_do_not_broadcast():
    with pytest.raises(ShapeError, match=r"operator 3 ADD: shapes \[2\], \[3\] do not broadcast"):
        broadcast(OP, (2,), (3,))


@given(st.integers(1, 20), st.integers(1, 5), st.integers(1, 4), st.integers(1, 3))
def test_windows_are_those_that_fit_or_that_begin_inside(size, extent, stride, dilation):
    effective = (extent - 1) * dilation + 1
    same = window(OP, Padding.SAME, size, extent, stride, dilation)
    assert same.size == len(range(0, size, stride))
    assert same.after - same.before in (0, 1)
    needed = (same.size - 1) * stride + effective
    assert same.before + same.after == max(0, needed - size)
    if effective <= size:
        valid = window(OP, Padding.VALID, size, extent, stride, dilation)
        assert (valid.size, valid.before, valid.after) == (len(range(0, size - effective + 1, stride)), 0, 0)


@pytest.mark.parametrize(("extent", "stride", "dilation"), [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_a_window_without_extent_is_refused(extent, stride, dilation):
    with pytest.raises(ShapeError, match="must be positive"):
        window(OP, Padding.SAME, 4, extent, stride, dilation)


def test_a_window_larger_than_the_input_is_refused():
    with pytest.raises(ShapeError, match=r"a filter of 9 \(dilated\) does not fit an input of 4"):
        window(OP, Padding.VALID, 4, 5, 1, 2)


def test_axes_count_from_both_ends():
    assert [axis_index(OP, i, 3) for i in range(-3, 3)] == [0, 1, 2, 0, 1, 2]
    for axis in (-4, 3):
        with pytest.raises(ShapeError, match=f"axis {axis} is outside rank 3"):
            axis_index(OP, axis, 3)


@pytest.mark.parametrize(
    ("target", "found"), [((2, 3), (2, 3)), ((-1,), (6,)), ((3, -1, 1), (3, 2, 1)), ((-1, 6), (1, 6))]
)
def test_one_unknown_dimension_is_what_is_left(target, found):
    assert reshaped(OP, 6, target) == found


@pytest.mark.parametrize("target", [(-1, -1), (4,), (4, -1), (0, -1), (-2, 3)])
def test_a_shape_that_does_not_hold_the_elements_is_refused(target):
    with pytest.raises(ShapeError, match="operator 3 ADD"):
        reshaped(OP, 6, target)


def test_ranks_and_images_are_required():
    assert image_shape(OP) == require_rank(OP, 0, 4) == (1, 4, 5, 2)
    with pytest.raises(ShapeError, match=r"input 0 has shape \[1, 4, 5, 2\], rank 2 or 3 is needed"):
        require_rank(OP, 0, 2, 3)
    with pytest.raises(ShapeError, match="has no pixels"):
        image_shape(context([shaped(1, 0, 5, 2)]))
