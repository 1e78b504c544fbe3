"""Sets of types that several families accept, in the order in which `docs/operators.md` lists them."""

from __future__ import annotations

from runtime.model.schema import TensorType

INDICES = (TensorType.INT32, TensorType.INT64)
NARROW_INDICES = (TensorType.INT16, *INDICES)
QUANTIZED = (TensorType.INT8, TensorType.UINT8, TensorType.INT16)

# Values that are only moved: everything but handles, which are not data.
MOVABLE = tuple(t for t in TensorType if t not in (TensorType.RESOURCE, TensorType.VARIANT))

# Those among them that have a zero.
PLAIN = tuple(t for t in MOVABLE if t is not TensorType.STRING)

# Values that are compared or added as numbers.
REAL_NUMBERS = (
    TensorType.FLOAT32,
    TensorType.FLOAT64,
    TensorType.INT8,
    TensorType.UINT8,
    TensorType.INT16,
    TensorType.UINT16,
    TensorType.INT32,
    TensorType.UINT32,
    TensorType.INT64,
    TensorType.UINT64,
)
