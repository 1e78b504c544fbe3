"""Hybrid (dynamic-range) kernels: float activations are quantised row by row when they arrive.

A row becomes levels less their zero point, times a scale: `tensor_utils::SymmetricQuantizeFloats` and
`AsymmetricQuantizeFloats` (`portable_tensor_utils.cc`). What follows is the float kernel on those levels and
on the filter's levels; its sums are integers, and each is scaled by the row's and the channel's scale.
"""

from __future__ import annotations

import numpy as np

from runtime.model.schema import TensorType
from runtime.ops.spec import Array, OpContext
from runtime.quantization import round_half_away

WEIGHTS = (TensorType.INT8, TensorType.UINT8, TensorType.INT4)
"""Types of filters that float activations meet as levels."""


def is_hybrid(op: OpContext, data: int = 0, weights: int = 1) -> bool:
    """True for float activations with a quantised filter."""
    return op.input(data).type is TensorType.FLOAT32 and op.input(weights).type in WEIGHTS


def differs_by_channel(op: OpContext, i: int = 1) -> bool:
    """True where the filter's scales differ: LiteRT's convolutions then quantise images asymmetrically."""
    q = op.input(i).quantization
    return q is not None and len(set(q.scales)) > 1


class RowQuantizer:
    """Quantises the rows of `x` [rows, K] on each call.

    Afterwards `levels` [rows, K] float32 holds integers less the zero point, `scales` [rows] float32.
    """

    def __init__(self, op: OpContext, x: Array, *, asymmetric: bool) -> None:
        self._x = x
        self._asymmetric = asymmetric
        self.levels = op.temporary(x.shape)
        self.scales = np.ones(len(x), np.float32)

    def __call__(self) -> None:
        """Read `x`, fill `levels` and `scales`."""
        if self._x.size == 0:
            return
        low, high = self._x.min(axis=1), self._x.max(axis=1)
        if self._asymmetric:
            self._quantize_asymmetric(low, high)
        else:
            self._quantize_symmetric(np.maximum(np.abs(low), np.abs(high)))

    def _quantize_symmetric(self, largest: Array) -> None:
        """Scale max|x| / 127, levels -127..127."""
        safe = np.where(largest == 0, np.float32(127), largest).astype(np.float32)
        np.divide(safe, np.float32(127), out=self.scales)
        np.multiply(self._x, (np.float32(127) / safe)[:, None], out=self.levels)
        np.copyto(self.levels, np.clip(round_half_away(self.levels), -127, 127))

    def _quantize_asymmetric(self, low: Array, high: Array) -> None:
        """256 levels from min(0, min x) to max(0, max x); the zero point is nudged to a level."""
        low, high = np.minimum(low, np.float32(0)), np.maximum(high, np.float32(0))
        flat = low == high
        np.divide(high - low, np.float32(255), out=self.scales)
        self.scales[flat] = 1
        scale, below, above = (a.astype(np.float64) for a in (self.scales, low, high))
        from_below, from_above = -128 - below / scale, 127 - above / scale
        nearer = 128 + np.abs(below / scale) < 127 + np.abs(above / scale)
        zero = np.clip(round_half_away(np.where(nearer, from_below, from_above)), -128, 127)
        zero = np.where(flat, 0.0, zero).astype(np.float32)[:, None]
        np.multiply(self._x, np.float32(1) / self.scales[:, None], out=self.levels)
        np.copyto(self.levels, np.clip(round_half_away(self.levels), -128 - zero, 127 - zero))


def filter_levels(op: OpContext, i: int = 1) -> Array:
    """Levels of a quantised filter less their zero point, float32."""
    value = op.input(i)
    q = value.quantization
    if q is None or q.is_custom or (not q.scales and q.blocks is None):
        raise op.unsupported("the filter has no scales")
    levels = op.constant(i, "filter").astype(np.float32)
    zeros = set(q.zero_points) if q.blocks is None else {0}
    if len(zeros) > 1:
        raise op.unsupported("a filter with several zero points")
    return levels - np.float32(zeros.pop() if zeros else 0)


def channel_scales(op: OpContext, channels: int, i: int = 1) -> Array:
    """The filter's scale of every output channel, float32."""
    q = op.input(i).quantization
    if q is None or len(q.scales) not in (1, channels):
        raise op.unsupported("the filter has neither one scale nor one for each output channel")
    return np.broadcast_to(np.asarray(q.scales, np.float32), (channels,))
