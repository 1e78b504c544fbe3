"""What the families of operators share; this door has what nearly every one of them imports."""

from runtime.ops.support.context import Kernel, OpContext
from runtime.ops.support.registry import operator
from runtime.ops.support.value import (
    INDICES,
    MOVABLE,
    NARROW_INDICES,
    PLAIN,
    QUANTIZED,
    REAL_NUMBERS,
    Array,
    Shape,
    Value,
)

__all__ = [
    "INDICES", "MOVABLE", "NARROW_INDICES", "PLAIN", "QUANTIZED", "REAL_NUMBERS",
    "Array", "Kernel", "OpContext", "Shape", "Value", "operator",
]  # fmt: skip
