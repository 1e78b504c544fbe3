"""What a custom operator of another package is made of (docs/api.md#custom-operators)."""

from runtime.errors import ShapeError, UnsupportedOperatorError
from runtime.model.flexbuffer import read_map
from runtime.ops.support.context import Kernel, OpContext
from runtime.ops.support.registry import custom_operator
from runtime.ops.support.value import Array, Shape

__all__ = [
    "Array",
    "Kernel",
    "OpContext",
    "Shape",
    "ShapeError",
    "UnsupportedOperatorError",
    "custom_operator",
    "read_map",
]
