"""Rounds float32 weights to a narrower type, as the option `precision` asks for."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import Graph, Value
from runtime.delegates.gpu.graph.weights import Stored, WeightType

_TYPES = {"fp16": WeightType.F16, "bf16": WeightType.BF16}
"""Precision → the type to which weights are rounded; the others round nothing."""

_MATRIX_RANK = 2
"""Dimensions from which on a constant may be the weights of a product; a bias has one and stays float32."""

_KEPT_BITS = 16
"""Bits of a float32 that a bfloat16 keeps."""

_FP16_LIMIT = np.float32(65520)
"""The least number that becomes infinite as fp16: halfway between its largest and the next power of two."""

_BFLOAT16_LIMIT = np.uint32(0x7F7F8000).view(np.float32)
"""The same of bfloat16."""

_QUIET = 0x40
"""The bit by which a NaN of bfloat16 is quiet; without it, one whose other bits are cut off would become
infinite."""


def round_weights(graph: Graph, precision: str) -> Graph:
    """Add a rounded form to each float32 constant that may be the weights of a product.

    Only products read that form (`weights_of`). What the file has narrow already stays as it is.
    """
    kind = _TYPES.get(precision)
    if kind is None:
        return graph
    values = {key: _rounded(value, kind) for key, value in graph.values.items()}
    return replace(graph, values=values)


def _rounded(value: Value, kind: WeightType) -> Value:
    if value.data is None or value.stored is not None or value.type is not ElementType.F32:
        return value
    return value if len(value.shape) < _MATRIX_RANK else replace(value, stored=rounded(value.data, kind))


def rounded(real: NDArray[np.float32], kind: WeightType) -> Stored | None:
    """Numbers rounded to the nearest fp16 or bfloat16, ties to even, once their codes are asked for.

    None where a finite number would become infinite: such a constant stays float32.
    """
    limit, round_ = (_FP16_LIMIT, _fp16) if kind is WeightType.F16 else (_BFLOAT16_LIMIT, _bfloat16)
    # Almost all weights pass this, which makes no copy; a NaN does not.
    if not -limit < real.min(initial=0) <= real.max(initial=0) < limit:
        size = np.abs(real)
        if np.any((size >= limit) & (size < np.inf)):
            return None
    return Stored(kind, real, rounding=round_)


def _fp16(real: NDArray[np.float32]) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):
        return real.astype(np.float16)


def _bfloat16(real: NDArray[np.float32]) -> NDArray[np.uint16]:
    bits = np.ascontiguousarray(real).view(np.uint32)
    # Half of the last place that stays, or a little less where that place is even already.
    nearest = bits >> _KEPT_BITS
    nearest &= 1
    nearest += np.uint32((1 << _KEPT_BITS - 1) - 1)
    nearest += bits
    nearest >>= _KEPT_BITS
    if np.isnan(real).any():
        nearest = np.where(np.isnan(real), bits >> _KEPT_BITS | _QUIET, nearest)
    return nearest.astype(np.uint16)
