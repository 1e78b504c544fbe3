"""Sums of products of quantised levels, exact through BLAS, and the way from sums to output levels.

Rules: `kernel_util.cc` (PopulateConvolutionQuantizationParams, GetQuantizedConvolutionMultipler) and
`reference/integer_ops/conv.h`. Filters may have a zero point where they are uint8.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np

from runtime.ops.matmul.level_matrix import LevelMatrix, stored_filter
from runtime.ops.support import Array, OpContext, TensorType, quantization

LEVELS: Final = (TensorType.INT8, TensorType.UINT8, TensorType.INT16)
"""Activation types of the integer kernels."""

_EXACT_FLOAT32: Final = 1 << 24
"""Largest size of a sum of integers in float32: up to here every integer has a float32. A sum that stays
below it at every step is exact in whatever order BLAS adds, with fused multiplication or without."""

_SMALLEST_PART: Final = 128
"""Columns by which a product is cut into exact parts: 128 products of int8 are at most 2^21. Chosen: finer
cuts would hardly lower the number of parts; coarser ones would send more int16 kernels to float64."""

_PREPARED_ELEMENTS: Final = 1 << 18
"""Filter elements that are widened to int32 at a time while planning, 1 MiB. Chosen to bound the memory."""

_INNER_ELEMENTS: Final = 4096
"""Elements of an inner loop over several pixels in the output stage. Chosen: a loop over few channels alone
is mostly overhead, while factors repeated for more elements would leave the first-level cache."""

OutputStage: TypeAlias = Callable[[Array, Array], None]
"""(sums, out): turns sums, integers in floating point, into output levels of the same shape."""

GemmLane: TypeAlias = Callable[[Array, Array, Array], Array]
"""(a, partial, total): returns a @ weights.T, integers of either dtype in one of the last two [M, Co].

`a` [M, K] of the GEMM's dtype holds raw levels; `partial` is of that dtype too, `total` float64.
"""


def require_filter(op: OpContext, activations: TensorType, i: int = 1) -> None:
    """Raise `UnsupportedOperatorError` unless filter `i` goes with activations of that type."""
    if activations is TensorType.UINT8:
        op.require(TensorType.UINT8, i=i)
    else:
        op.require(TensorType.INT8, TensorType.INT4, TensorType.INT2, i=i)


def centred_filter(op: OpContext, i: int = 1) -> Array:
    """Return filter levels less their zero point, int16, in the filter's shape."""
    levels, zero = stored_filter(op, i)
    return levels.astype(np.int16) - np.int16(zero)


def input_zero_point(op: OpContext, i: int = 0) -> int:
    """Return the zero point of input `i`."""
    return op.scale_and_zero_point(op.input(i))[1]


def integer_bias(op: OpContext, channels: int, i: int = 2) -> Array:
    """Return the int32 or int64 bias as float64 [channels], zeros where it is absent."""
    if op.optional(i) is None:
        return np.zeros(channels)
    op.require(TensorType.INT32, TensorType.INT64, i=i)
    return op.constant(i, "bias").astype(np.float64).reshape(-1)


def effective_scales(op: OpContext, channels: int, data: int = 0, weights: int = 1) -> list[float]:
    """Return in_scale * filter_scale / out_scale of every channel.

    With uint8 the product is of single precision (`GetQuantizedConvolutionMultipler`), else of double.
    """
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
    op: OpContext,
    channels: int,
    capacity: int,
    data: int = 0,
    weights: int = 1,
    bias: int = 2,
    *,
    offset: Array | float = 0.0,
    limit: float = 1 << 31,
    width: int = 1,
) -> OutputStage:
    """Return the way from at most `capacity` sums, channels last, to output levels after the activation.

    `offset` is added to the sums first, which together stay within `limit`; a call gets whole rows of `width`
    pixels.
    """
    out_type = op.require_output(TensorType.INT8, TensorType.UINT8, TensorType.INT16)
    out_scale, out_zero = op.scale_and_zero_point(op.output())
    clamp = quantization.activation_range(op.activation(), out_scale, out_zero, out_type)
    multipliers, shifts = quantization.quantize_multipliers(effective_scales(op, channels, data, weights))
    if out_type is TensorType.INT16 and accumulates_wide(op, bias):
        wide = quantization.WideRequantizer(multipliers, shifts, clamp)
        return lambda sums, out: wide(sums + offset, out)
    work = op.temporary((2 * capacity,), np.float64)
    repeats = _repeats(channels, width)
    return quantization.Requantizer(
        multipliers, shifts, out_zero, clamp, work, offset, limit=limit, repeats=repeats
    )


def _repeats(channels: int, width: int) -> int:
    """Return how many pixels of a row share an inner loop: a divisor of `width`."""
    most = min(width, _INNER_ELEMENTS // max(1, channels))
    return next((d for d in range(most, 1, -1) if width % d == 0), 1)


def accumulates_wide(op: OpContext, bias: int) -> bool:
    """Return whether int16 activations sum to 64 bits: a bias decides by its type, else the option does."""
    value = op.optional(bias)
    if value is None:
        return op.operator.options.get("quantized_bias_type") is not TensorType.INT32
    return value.type is TensorType.INT64


class ExactGemm:
    """Integer GEMM through BLAS whose partial sums are integers that floating point holds exactly.

    `levels` [Co, K] less `zero` are the weights; `activations` is the type of the levels that calls multiply.
    A product lacks its `offset` [Co], the bias less what `in_zero` adds; with it no sum is larger than
    `limit`.
    """

    def __init__(
        self, op: OpContext, levels: Array, zero: int, activations: TensorType, in_zero: int, bias: Array
    ) -> None:
        sums, sizes = _sums_and_sizes(levels, zero)
        # No sum of products exceeds the weights' sizes times the largest activation.
        sizes *= max(abs(bound) for bound in quantization.RANGES[activations])
        # sum w (x - z) = sum w x - z * sum w: raw levels are multiplied, and the rest is known before a run.
        self.offset = bias - in_zero * sums
        self.limit = float((sizes.sum(axis=1) + np.abs(self.offset)).max(initial=0))
        parts = _exact_parts(sizes, levels.shape[1])
        self.dtype: Any = np.float64 if parts is None else np.float32
        self._parts = parts or [slice(0, levels.shape[1])]
        self._matrix = LevelMatrix(op, levels, zero, self.dtype)

    def lane(self) -> GemmLane:
        """Return the product for one thread: one matrix product, or exact parts that float64 adds up."""
        if len(self._parts) == 1:
            product = self._matrix.product()

            def run(a: Array, partial: Array, _total: Array) -> Array:
                product(a, partial)
                return partial

            return run
        first, *others = self._parts
        pieces = self._matrix.pieces()

        def run_parts(a: Array, partial: Array, total: Array) -> Array:
            for channels, matrix in pieces():
                some, sums = partial[:, channels], total[:, channels]
                np.matmul(a[:, first], matrix[first], out=some)
                # Each part is exact in float32; their sum may not be, and is made in float64.
                np.copyto(sums, some)
                for part in others:
                    np.matmul(a[:, part], matrix[part], out=some)
                    np.add(sums, some, out=sums)
            return total

        return run_parts


def _sums_and_sizes(levels: Array, zero: int) -> tuple[Array, Array]:
    """Return, of every channel, the sum of its weights, int64 [Co], and sums of their sizes, int64 [Co, n].

    The sizes are added up for each of the n ranges of `_SMALLEST_PART` columns.
    """
    count, depth = levels.shape
    starts = np.arange(0, depth, _SMALLEST_PART)
    sums, sizes = np.zeros(count, np.int64), np.zeros((count, starts.size), np.int64)
    step = max(1, _PREPARED_ELEMENTS // max(1, depth))
    for i in range(0, count if depth else 0, step):
        some = levels[i : i + step].astype(np.int32) - np.int32(zero)
        sums[i : i + step] = some.sum(axis=1)
        sizes[i : i + step] = np.add.reduceat(np.abs(some), starts, axis=1)
    return sums, sizes


def _exact_parts(sizes: Array, depth: int) -> list[slice] | None:
    """Return the fewest ranges of columns whose sums stay within 2^24 in size.

    The bound is of this filter's weights and the type's largest activation, so that real filters, whose
    weights are mostly small, need few parts. None where even `_SMALLEST_PART` columns may exceed it.
    """
    cuts, running = [0], np.zeros(len(sizes), np.int64)
    for block in range(sizes.shape[1]):
        if sizes[:, block].max(initial=0) > _EXACT_FLOAT32:
            return None
        running += sizes[:, block]
        if running.max(initial=0) > _EXACT_FLOAT32:
            # The block that does not fit begins the next part.
            cuts.append(block * _SMALLEST_PART)
            running = sizes[:, block].copy()
    return [slice(a, b) for a, b in pairwise([*cuts, depth])]
