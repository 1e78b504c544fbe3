"""The shared parts of operator families; this door has those that nearly every family imports.

`Op` is the schema's enumeration of operators.
"""

from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import TensorType
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
    "Array", "Kernel", "Op", "OpContext", "Shape", "TensorType", "Value", "operator",
]  # fmt: skip
