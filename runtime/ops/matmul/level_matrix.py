"""Filters of levels as the right-hand side of floating-point products.

A small filter is widened once. A large one stays as narrow as it is in the file, and is widened piece by
piece in every call: that costs little beside the product, reads fewer bytes, and needs no second copy.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from runtime.ops.support import Array, OpContext

_KEPT_ELEMENTS = 1 << 16
"""Largest filter, in elements, that is kept widened: 256 KiB of float32. Chosen: it stays in a second-level
cache between runs; larger filters in float would take four times the file's memory."""

_PIECE_BYTES = 1 << 19
"""Bytes of a widened piece of a large filter. Chosen to stay in a second-level cache until its product."""

_PIECE_ROWS = 16
"""Output channels of which a piece is a multiple, and the least it has. Chosen: common BLAS kernels compute
as many columns at a time, or a divisor of them."""

Product: TypeAlias = Callable[[Array, Array], object]
"""(a [M, K], out [M, Co]): writes out = a @ weights.T."""


def stored_filter(op: OpContext, i: int = 1) -> tuple[Array, int]:
    """Return filter levels in their narrow type and the filter's shape, and their zero point."""
    q = op.input(i).quantization
    if q is None or q.blocks is not None or q.is_custom or not q.scales:
        raise op.unsupported("the filter has no scales")
    zeros = set(q.zero_points) or {0}
    if len(zeros) > 1:
        raise op.unsupported("a filter with several zero points")
    return op.constant(i, "filter"), zeros.pop()


class LevelMatrix:
    """A filter, `levels` [Co, K] of a narrow integer type, less `zero`, as a matrix of `dtype`."""

    def __init__(self, op: OpContext, levels: Array, zero: int, dtype: Any) -> None:
        self._op = op
        self._levels = levels
        self._zero = zero
        self._dtype = dtype
        self._kept = None if levels.size > _KEPT_ELEMENTS else self._widened()
        count, depth = levels.shape
        rows = _PIECE_BYTES // max(1, depth * np.dtype(dtype).itemsize)
        # Rounded down to whole groups of channels, but to one group at least.
        self._rows = min(count, max(_PIECE_ROWS, rows // _PIECE_ROWS * _PIECE_ROWS))

    def pieces(self) -> Callable[[], Iterator[tuple[slice, Array]]]:
        """Return an iterator function over (output channels, their columns [K, n]); one for each thread."""
        kept = self._kept
        if kept is not None:
            whole = [(slice(0, len(self._levels)), kept)]
            return lambda: iter(whole)
        buffer = self._op.temporary((self._rows, self._levels.shape[1]), self._dtype)
        return lambda: self._widen(buffer)

    def product(self) -> Product:
        """Return the product with the whole filter; one for each thread."""
        kept = self._kept
        if kept is not None:
            return plain_product(kept)
        pieces = self.pieces()

        def run(a: Array, out: Array) -> None:
            for channels, matrix in pieces():
                np.matmul(a, matrix, out=out[:, channels])

        return run

    def _widen(self, buffer: Array) -> Iterator[tuple[slice, Array]]:
        for start in range(0, len(self._levels), self._rows):
            some = self._levels[start : start + self._rows]
            wide = buffer[: len(some)]
            np.copyto(wide, some)
            if self._zero:
                np.subtract(wide, self._dtype(self._zero), out=wide)
            yield slice(start, start + len(some)), wide.T

    def _widened(self) -> Array:
        wide = self._levels.astype(self._dtype)
        wide -= self._dtype(self._zero)
        return wide.T


def plain_product(matrix: Array) -> Product:
    """Return the product with a matrix [K, Co]."""
    return lambda a, out: np.matmul(a, matrix, out=out)
