"""Sums of products of quantised levels, exact through BLAS, and the way from sums to output levels.

Rules: `kernel_util.cc` (PopulateConvolutionQuantizationParams, GetQuantizedConvolutionMultipler) and
`reference/integer_ops/conv.h`. Filters may have a zero point where they are uint8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from runtime.model.schema import TensorType
from runtime.ops.spec import Array, OpContext
from runtime.quantization import (
    RANGES,
    Requantizer,
    WideRequantizer,
    activation_range,
    quantize_multipliers,
)

LEVELS: Final = (TensorType.INT8, TensorType.UINT8, TensorType.INT16)
"""Activation types of the integer kernels."""

_EXACT_FLOAT32: Final = 1 << 24
_SMALLEST_PART: Final = 128

OutputStage: TypeAlias = Callable[[Array, Array], None]
"""(sums as float64 integers, destroyed; output levels of the same shape)."""


def require_filter(op: OpContext, activations: TensorType, i: int = 1) -> None:
    """Raise `UnsupportedOperatorError` unless filter `i` goes with activations of that type."""
    if activations is TensorType.UINT8:
        op.require(TensorType.UINT8, i=i)
    else:
        op.require(TensorType.INT8, TensorType.INT4, i=i)


def centred_filter(op: OpContext, i: int = 1) -> Array:
    """Filter levels less their zero point, int16, in the filter's shape."""
    q = op.input(i).quantization
    if q is None or q.blocks is not None or q.is_custom or not q.scales:
        raise op.unsupported("the filter has no scales")
    levels = op.constant(i, "filter").astype(np.int16)
    if any(q.zero_points):
        if len(set(q.zero_points)) > 1:
            raise op.unsupported("a filter with several zero points")
        levels -= np.int16(q.zero_points[0])
    return levels


def level_zero(op: OpContext, i: int = 0) -> int:
    """The level of a real zero in input `i`."""
    return op.scale_and_zero_point(op.input(i))[1]


def integer_bias(op: OpContext, channels: int, i: int = 2) -> Array:
    """The int32 or int64 bias as float64, zeros where absent."""
    if op.optional(i) is None:
        return np.zeros(channels)
    op.require(TensorType.INT32, TensorType.INT64, i=i)
    return op.constant(i, "bias").astype(np.float64).reshape(-1)


def effective_scales(op: OpContext, channels: int, data: int = 0, weights: int = 1) -> list[float]:
    """in_scale * filter_scale / out_scale of every channel; with uint8 the product is of single precision."""
    in_scale, _ = op.scale_and_zero_point(op.input(data))
    out_scale, _ = op.scale_and_zero_point(op.output())
    q = op.input(weights).quantization
    if q is None or len(q.scales) not in (1, channels):
        raise op.unsupported("the filter has no per-channel scales")
    if op.input(data).type is TensorType.UINT8:
        return [float(np.float32(in_scale) * np.float32(q.scales[0])) / out_scale] * channels
    scales = q.scales * channels if len(q.scales) == 1 else q.scales
    return [in_scale * scale / out_scale for scale in scales]


def output_stage(
    op: OpContext, channels: int, capacity: int, data: int = 0, weights: int = 1, bias: int = 2
) -> OutputStage:
    """From at most `capacity` sums, channels last, to output levels, fused activation included."""
    out_type = op.output().type
    out_scale, out_zero = op.scale_and_zero_point(op.output())
    clamp = activation_range(op.activation(), out_scale, out_zero, out_type)
    multipliers, shifts = quantize_multipliers(effective_scales(op, channels, data, weights))
    if out_type is TensorType.INT16 and accumulates_wide(op, bias):
        return WideRequantizer(multipliers, shifts, clamp)
    return Requantizer(multipliers, shifts, out_zero, clamp, op.temporary((capacity,), np.float64))


def accumulates_wide(op: OpContext, bias: int) -> bool:
    """True where int16 sums are of 64 bits: they are of 32 only with a bias of that type."""
    value = op.optional(bias)
    return value is None or value.type is TensorType.INT64


class ExactGemm:
    """Integer GEMM through BLAS whose partial sums are integers that floating point holds exactly.

    `weights` [Co, K] are centred; `activations` is the type of the raw levels that calls bring.
    """

    def __init__(self, weights: Array, activations: TensorType, in_zero: int, bias: Array) -> None:
        self._offset = bias - in_zero * weights.sum(axis=1, dtype=np.int64)
        largest = max(abs(bound) for bound in RANGES[activations]) * max(
            1, int(np.abs(weights).max(initial=1))
        )
        depth = weights.shape[1]
        terms = _EXACT_FLOAT32 // largest
        self.dtype: Any = np.float32 if terms >= min(depth, _SMALLEST_PART) else np.float64
        step = terms if self.dtype is np.float32 else max(1, depth)
        self._parts = [
            (part, weights[:, part].astype(self.dtype).T)
            for part in (slice(k, k + step) for k in range(0, depth, step))
        ]

    def __call__(self, a: Array, partial: Array, total: Array) -> None:
        """total = (a - in_zero) @ weights.T + bias, as float64 integers.

        `a` [M, K] of `dtype` holds raw levels; `partial` [M, Co] of `dtype` is scratch.
        """
        offset = self._offset
        for part, matrix in self._parts:
            np.matmul(a[:, part], matrix, out=partial)
            np.add(partial, offset, out=total)
            offset = total
