"""The types of tensor elements that the delegate can hold, with their names in OpenCL C, numpy and files."""

from enum import Enum
from typing import Any, TypeAlias

import numpy as np

from runtime.model.schema import TensorType


class ElementType(Enum):
    """A type of element; its value is the name that numpy, files and messages use.

    A bool is one byte, 0 or 1, as in LiteRT. U8 also holds packed weights: their kernel says what the
    bytes mean. A complex number is its real part, then its imaginary part.
    """

    F32 = "float32"
    I32 = "int32"
    I64 = "int64"
    BOOL = "bool"
    I16 = "int16"
    I8 = "int8"
    U8 = "uint8"
    C64 = "complex64"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of host arrays."""
        return np.dtype(self.value)

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def opencl(self) -> str:
        """The OpenCL C type of an element in memory."""
        return _OPENCL[self]

    @property
    def word(self) -> str:
        """The OpenCL C type by which copies move an element: types of one size share their functions."""
        return _WORDS[self.size]

    @property
    def tensor_type(self) -> TensorType:
        """The type's name in a model file."""
        return TensorType[self.value.upper()]


_OPENCL = {
    ElementType.F32: "float",
    ElementType.I32: "int",
    ElementType.I64: "long",
    ElementType.BOOL: "uchar",
    ElementType.I16: "short",
    ElementType.I8: "char",
    ElementType.U8: "uchar",
    ElementType.C64: "float2",
}

_WORDS = {1: "uchar", 2: "ushort", 4: "float", 8: "ulong"}
"""Bytes of an element → the type that moves it. A float that is only loaded and stored keeps all its bits,
and the vectors of `kernels/common.cl` are of floats."""

ElementTypes: TypeAlias = tuple[ElementType, ...]
"""The types that a kernel takes in one place, in the order in which messages list them."""

MOVABLE: ElementTypes = tuple(ElementType)
"""What operators take that only move elements."""

PLAIN: ElementTypes = (ElementType.F32, ElementType.I32, ElementType.I64, ElementType.BOOL)
"""What element-wise operators take that have a kernel for every type; of others they take real numbers."""

INDICES: ElementTypes = (ElementType.I32, ElementType.I64)
"""What operators take as computed indices."""


def element_type(tensor: TensorType) -> ElementType | None:
    """Return the type in which a tensor enters the graph, fp16 as float32; None for one that cannot."""
    if tensor is TensorType.FLOAT16:
        return ElementType.F32
    return next((known for known in MOVABLE if known.tensor_type is tensor), None)
