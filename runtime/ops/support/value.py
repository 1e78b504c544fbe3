"""A tensor as operators see it: how each type of the file is held in numpy, and constants unpacked.

| type of the file | numpy | values |
|---|---|---|
| INT4, INT2 | int8 | unpacked, sign-extended |
| UINT4 | uint8 | unpacked |
| BFLOAT16 | uint16 | the raw bits |
| FLOAT8_E4M3FN, FLOAT8_E5M2 | int8 | the raw bits |
| STRING | object | `bytes` |
| RESOURCE, VARIANT | int32 | handles |
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from runtime.model.graph import Quantization, Tensor
from runtime.model.schema import TensorType
from runtime.ops.support.sparse import dense_values

Array: TypeAlias = NDArray[Any]
Shape: TypeAlias = tuple[int, ...]

_OTHERWISE: Mapping[TensorType, Any] = {
    TensorType.INT4: np.int8,
    TensorType.INT2: np.int8,
    TensorType.UINT4: np.uint8,
    TensorType.BFLOAT16: np.uint16,
    TensorType.FLOAT8_E4M3FN: np.int8,
    TensorType.FLOAT8_E5M2: np.int8,
    TensorType.STRING: np.object_,
    TensorType.RESOURCE: np.int32,
    TensorType.VARIANT: np.int32,
}
"""How types are held that numpy has not under the same name."""

_DTYPES = {t: np.dtype(_OTHERWISE[t] if t in _OTHERWISE else t.name.lower()) for t in TensorType}
_PACKED: Mapping[TensorType, int] = {TensorType.INT4: 4, TensorType.UINT4: 4, TensorType.INT2: 2}
RAW_BITS = frozenset({TensorType.BFLOAT16, TensorType.FLOAT8_E4M3FN, TensorType.FLOAT8_E5M2})
_SPARSE_PACKED = frozenset({*_PACKED, TensorType.STRING})
HANDLES = frozenset({TensorType.RESOURCE, TensorType.VARIANT})

# Sets of types that several families accept, in the order in which `docs/operators.md` lists them.

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
    TensorType.FLOAT32, TensorType.FLOAT64, TensorType.INT8, TensorType.UINT8, TensorType.INT16,
    TensorType.UINT16, TensorType.INT32, TensorType.UINT32, TensorType.INT64, TensorType.UINT64,
)  # fmt: skip
"""Values that are compared or added as numbers."""


def dtype_of(tensor_type: TensorType) -> np.dtype[Any] | None:
    """Return the numpy dtype that holds `tensor_type`, see the table above; None for a type without one."""
    return _DTYPES.get(tensor_type)


def constant_array(tensor: Tensor) -> Array | None:
    """Return the values of a constant, None for a tensor without values or of a type that numpy lacks.

    They are a view of the file where it stores them dense, unpacked and aligned, else a copy. Raises
    `ShapeError` for a sparse constant whose elements do not fit its shape.
    """
    dtype = dtype_of(tensor.type)
    if tensor.data is None or dtype is None or tensor.type in HANDLES:
        return None
    if tensor.sparsity is not None:
        return None if tensor.type in _SPARSE_PACKED else dense_values(tensor, dtype)
    if tensor.type is TensorType.STRING:
        return _strings(tensor.data, tensor.shape)
    if tensor.type in _PACKED:
        return unpacked(tensor.data, tensor.type, tensor.shape)
    values = np.frombuffer(tensor.data, dtype.newbyteorder("<")).reshape(tensor.shape)
    return values if values.flags.aligned else values.copy()


def unpacked(data: memoryview | bytes, tensor_type: TensorType, shape: Shape) -> Array:
    """Return INT4, UINT4 or INT2 `data` (lowest bits first) as one 8-bit integer per element of `shape`."""
    bits = _PACKED[tensor_type]
    stored = np.frombuffer(data, np.uint8)
    values = np.empty((stored.size, 8 // bits), np.uint8)
    for place in range(8 // bits):
        np.left_shift(stored, 8 - bits * (place + 1), out=values[:, place])
    # Each value was shifted to the top of its byte: shifting it back down as int8 extends its sign.
    signed = tensor_type is not TensorType.UINT4
    wide = values.view(np.int8) if signed else values
    np.right_shift(wide, 8 - bits, out=wide)
    return wide.reshape(-1)[: math.prod(shape)].reshape(shape)


def _strings(data: memoryview, shape: Shape) -> Array:
    count = struct.unpack_from("<i", data)[0]
    offsets = struct.unpack_from(f"<{count + 1}i", data, 4)
    values = np.empty(count, np.object_)
    values[:] = [bytes(data[a:b]) for a, b in pairwise(offsets)]
    return values.reshape(shape) if count == math.prod(shape) else values


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor as an operator sees it.

    `constant` holds values known while planning. `array` is the bound memory: None while shapes are inferred.
    `stored` is the tensor of the file, for the few operators that read more of it than type and shape.
    """

    index: int
    name: str
    type: TensorType
    shape: Shape
    quantization: Quantization | None = None
    constant: Array | None = None
    array: Array | None = None
    stored: Tensor | None = None

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The numpy dtype, None for a type that numpy lacks."""
        return dtype_of(self.type)

    @property
    def elements(self) -> int:
        """The number of elements: the product of the dimensions."""
        return math.prod(self.shape)
