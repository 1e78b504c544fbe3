"""Levels of filters as the floating-point numbers that BLAS multiplies.

Large filters are widened anew on every run, into memory that all operators share: kept, they would take four
times the bytes of the file.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from runtime.ops.spec import Array, Kernel, OpContext

KEPT_ELEMENTS = 1 << 15


def filter_zero(op: OpContext, i: int = 1) -> int:
    """The one zero point of a quantised filter. Raises `UnsupportedOperatorError` for several."""
    q = op.input(i).quantization
    if q is None or q.is_custom or (not q.scales and q.blocks is None):
        raise op.unsupported("the filter has no scales")
    zeros = {0} if q.blocks is not None else set(q.zero_points)
    if len(zeros) > 1:
        raise op.unsupported("a filter with several zero points")
    return zeros.pop() if zeros else 0


def widened(
    op: OpContext, levels: Array, zero: int, dtype: Any = np.float32, memory: Array | None = None
) -> tuple[Array, Kernel]:
    """`levels` less `zero` in `dtype`, and what fills it, to be called first in every run.

    `memory`: flat, of `dtype`, at least as large; several filters may take turns in it.
    """
    if levels.size <= KEPT_ELEMENTS:
        kept = levels.astype(dtype)
        np.subtract(kept, zero, out=kept)
        return kept, _nothing
    if memory is None:
        memory = op.temporary((levels.size,), dtype)
    wide = memory[: levels.size].reshape(levels.shape)

    def fill() -> None:
        if zero:
            np.subtract(levels, dtype(zero), out=wide)
        else:
            np.copyto(wide, levels)

    return wide, fill


def _nothing() -> None:
    return None
