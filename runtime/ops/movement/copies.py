"""Kernels that only move elements: pairs of views, prepared once and copied at each run."""

from collections.abc import Sequence

import numpy as np

from runtime.ops.support import Array, Kernel, OpContext, Value
from runtime.ops.support.blocks import over


def copy(target: Array, source: Array) -> Kernel:
    """Return a kernel that copies `source` to `target`, broadcast where it is smaller."""
    return lambda: np.copyto(target, source)


def copies(pairs: Sequence[tuple[Array, Array]]) -> Kernel:
    """Return a kernel that copies every (target, source) in order."""
    if len(pairs) == 1:
        return copy(*pairs[0])
    return over(pairs, np.copyto)


def require_same_scale(op: OpContext, *values: Value) -> None:
    """Raise `UnsupportedOperatorError` where values differ in scale or zero point.

    Unlike `OpContext.require_equal_quantization` it accepts values without a scale: elements that are only
    moved keep their meaning beside them.
    """
    found = {
        (v.quantization.scales, v.quantization.zero_points)
        for v in values
        if v.quantization is not None and v.quantization.scales
    }
    if len(found) > 1:
        raise op.unsupported("inputs and output differ in scale or zero point")


def quantized_zero(value: Value) -> int:
    """Return the integer that stands for real zero: the zero point of a quantised value, else 0."""
    q = value.quantization
    return q.zero_points[0] if q is not None and q.zero_points else 0
