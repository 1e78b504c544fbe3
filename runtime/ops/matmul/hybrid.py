"""Hybrid (dynamic-range) kernels: float activations are quantised row by row in every run.

A row becomes levels less their zero point, times a scale: `tensor_utils::SymmetricQuantizeFloats` and
`AsymmetricQuantizeFloats` (`portable_tensor_utils.cc`). What follows is the float kernel on those levels and
on the filter's levels; its sums are integers, and each is scaled by the row's and the channel's scale.
"""

import numpy as np

from runtime.ops.matmul.level_matrix import stored_filter
from runtime.ops.support import Array, OpContext, TensorType
from runtime.ops.support.blocks import broadcast_blocks
from runtime.ops.support.quantization import round_half_away

_LARGEST = np.float32(127)
"""The largest int8 level; symmetric rows leave -128 out, so that levels mirror at 0."""

WEIGHTS = (TensorType.INT8, TensorType.UINT8, TensorType.INT4, TensorType.INT2)
"""Types of filters that make a kernel of float activations hybrid."""


def is_hybrid(op: OpContext, data: int = 0, weights: int = 1) -> bool:
    """Return whether float activations come with a quantised filter."""
    return op.input(data).type is TensorType.FLOAT32 and op.input(weights).type in WEIGHTS


def differs_by_channel(op: OpContext, i: int = 1) -> bool:
    """Return whether the filter's scales differ, where CONV_2D quantises images asymmetrically."""
    q = op.input(i).quantization
    return q is not None and len(set(q.scales)) > 1


class RowQuantizer:
    """Quantises the rows of `x` [rows, K] on each call.

    Afterwards `levels` [rows, K] float32 holds integers less the zero point, `scales` [rows] float32. In
    LiteRT too, scales and zero points are of double precision, and x / scale + zero point is rounded.
    """

    def __init__(self, op: OpContext, x: Array, *, asymmetric: bool) -> None:
        self._x = x
        self.levels = op.temporary(x.shape)
        self.scales = np.ones(len(x), np.float32)
        self._inverse, self._zeros = np.ones((len(x), 1), np.float32), np.zeros((len(x), 1), np.float32)
        self._is_asymmetric, self._lowest = asymmetric, -128 if asymmetric else -127
        self._set_scales = self._asymmetric if asymmetric else self._symmetric
        pieces = broadcast_blocks(self.levels, x, self._inverse, self._zeros)
        whole = op.temporary((max((p[0].size for p in pieces), default=0),))
        self._pieces = [(*p, whole[: p[0].size].reshape(p[0].shape)) for p in pieces]

    def __call__(self) -> None:
        """Quantise what `x` holds now; fill `levels` and `scales`."""
        if self._x.size == 0:
            return
        self._set_scales(np.minimum.reduce(self._x, axis=1), np.maximum.reduce(self._x, axis=1))
        for levels, x, inverse, zeros, whole in self._pieces:
            np.multiply(x, inverse, out=levels)
            if not self._is_asymmetric:
                # The largest |x| times 127 / |x| rounds to 127, so that there is nothing to clamp.
                _round_half_away(levels, whole)
                continue
            np.add(levels, zeros, out=levels)
            _round_half_away(levels, whole)
            np.clip(levels, self._lowest, _LARGEST, out=levels)
            np.subtract(levels, zeros, out=levels)
        self._settle()

    def _symmetric(self, low: Array, high: Array) -> None:
        """Set scales of max|x| / 127, for levels -127..127; a row of zeros has scale 1."""
        largest = np.maximum(np.abs(low, out=low), np.abs(high, out=high), out=high)
        if not largest.all():
            largest[largest == 0] = _LARGEST
        np.divide(largest, _LARGEST, out=self.scales)
        np.divide(_LARGEST, largest, out=self._inverse[:, 0])

    def _asymmetric(self, low: Array, high: Array) -> None:
        """Set scales and zero points of 256 levels from min(0, min x) to max(0, max x).

        The zero point comes from the end of less error, and is nudged to a level, so that real 0 is exact.
        """
        below, above = np.minimum(low, 0).astype(np.float64), np.maximum(high, 0).astype(np.float64)
        flat = below == above
        scale = np.where(flat, 1.0, (above - below) / 255)
        from_below, from_above = -128 - below / scale, 127 - above / scale
        # The error of either end as the reference estimates it: the size of
        # its level and of its quotient, added up.
        nearer = 128 + np.abs(below / scale) < 127 + np.abs(above / scale)
        zero = np.clip(round_half_away(np.where(nearer, from_below, from_above)), -128, 127)
        np.copyto(self._zeros[:, 0], np.where(flat, 0.0, zero), casting="same_kind")
        np.copyto(self.scales, scale, casting="same_kind")
        np.divide(np.float32(1), self.scales, out=self._inverse[:, 0])

    def _settle(self) -> None:
        """Set the levels of rows whose inverse scale overflows, or which hold infinities.

        Casting what is not finite to an integer is undefined in C++; x86 gives the least, so the lowest
        level.
        """
        usual = np.isfinite(self._inverse[:, 0]) & np.isfinite(self.scales)
        if usual.all():
            return
        odd = ~usual
        lowest = self._lowest - self._zeros[odd]
        finite = np.isfinite(self._x[odd] * self._inverse[odd])
        self.levels[odd] = np.where(finite, self.levels[odd], lowest)


def _round_half_away(x: Array, whole: Array) -> None:
    """Apply `round_half_away` in place; `whole` is scratch memory of the same shape."""
    np.trunc(x, out=whole)
    np.subtract(x, whole, out=x)
    # Twice the fraction is 1 or more in size just where x rounds away from zero; both steps are exact.
    np.multiply(x, np.float32(2), out=x)
    np.trunc(x, out=x)
    np.add(x, whole, out=x)


def hybrid_filter(op: OpContext, i: int = 1) -> tuple[Array, int]:
    """Return the levels of a quantised filter in their narrow type, and their zero point.

    One with a scale for each block has none.
    """
    q = op.input(i).quantization
    if q is not None and q.blocks is not None and not q.is_custom:
        return op.constant(i, "filter"), 0
    return stored_filter(op, i)


def filter_levels(op: OpContext, i: int = 1) -> Array:
    """Return the levels of a quantised filter less their zero point, float32 in the filter's shape."""
    levels, zero = hybrid_filter(op, i)
    return levels.astype(np.float32) - np.float32(zero)


def channel_scales(op: OpContext, channels: int, i: int = 1) -> Array:
    """Return the filter's scale of every output channel, float32 [channels]."""
    q = op.input(i).quantization
    if q is None or len(q.scales) not in (1, channels):
        raise op.unsupported("the filter has neither one scale nor one for each output channel")
    return np.broadcast_to(np.asarray(q.scales, np.float32), (channels,))
