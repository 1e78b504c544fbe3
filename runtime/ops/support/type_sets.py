"""Sets of types that several families accept, in the order in which `docs/operators.md` lists them."""

from runtime.model.schema import TensorType

INDICES = (TensorType.INT32, TensorType.INT64)
"""Indices, axes and shapes."""

NARROW_INDICES = (TensorType.INT16, *INDICES)
"""Indices of the operators that LiteRT extended to int16."""

QUANTIZED = (TensorType.INT8, TensorType.UINT8, TensorType.INT16)
"""Quantised activations."""

MOVABLE = tuple(t for t in TensorType if t not in (TensorType.RESOURCE, TensorType.VARIANT))
"""Values that are only moved: everything but handles, which are not data."""

PLAIN = tuple(t for t in MOVABLE if t is not TensorType.STRING)
"""Movable values that have a zero."""

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
"""Values that are compared or added as numbers."""
