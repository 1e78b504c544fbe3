"""Columns of convolution windows, gathered tile by tile, against a loop over every window."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from runtime.model.schema import Padding
from runtime.ops.matmul.windows import Geometry, geometry, tiles
from tests.runtime.ops.contexts import bound, context
from tests.runtime.ops.matmul.test_conv import options

FILL = -5.0


def gathered(g: Geometry, x: np.ndarray, image: int, row: int, column: int) -> list[float]:
    """Return the window of one output pixel, element by element."""
    found: list[float] = []
    for i, j in itertools.product(range(g.filter_h), range(g.filter_w)):
        r = row * g.stride_h - g.rows.before + i * g.dilation_h
        c = column * g.stride_w - g.columns.before + j * g.dilation_w
        inside = 0 <= r < x.shape[1] and 0 <= c < x.shape[2]
        found += x[image, r, c].tolist() if inside else [FILL] * x.shape[3]
    return found


FORMS = {
    "pointwise": ((1, 1), options()),
    "same": ((3, 3), options()),
    "even filter": ((2, 4), options()),
    "strides": ((3, 2), options(stride=(2, 3))),
    "valid": ((3, 2), options(Padding.VALID)),
    "dilated": ((2, 3), options(dilation=(3, 2))),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
@pytest.mark.parametrize("lanes", [1, 3])
def test_every_output_pixel_has_the_columns_of_its_window(form, dtype, lanes):
    (filter_h, filter_w), given = form
    x = np.arange(2 * 7 * 8 * 3).reshape(2, 7, 8, 3).astype(dtype)
    op = context([bound(x)], options=given)
    g = geometry(op, filter_h, filter_w)
    seen = set()
    for lane in tiles(op, g, x, FILL, 4, lanes=lanes):
        for tile in lane:
            for target, source in tile.copies:
                np.copyto(target, source, casting="unsafe")
            rows = tile.columns.reshape(tile.stop - tile.start, g.columns.size, -1)
            for row, column in itertools.product(range(tile.start, tile.stop), range(g.columns.size)):
                assert rows[row - tile.start, column].tolist() == gathered(g, x, tile.image, row, column)
                seen.add((tile.image, row, column))
    assert len(seen) == 2 * g.rows.size * g.columns.size


def test_a_pointwise_window_of_the_same_type_is_the_input_itself():
    x = np.ones((1, 4, 4, 2), np.float32)
    op = context([bound(x)], options=options())
    ((tile,),) = tiles(op, geometry(op, 1, 1), x, 0.0, 4)
    assert tile.copies == ()
    assert np.shares_memory(tile.columns, x)
