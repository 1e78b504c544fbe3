"""The end of a float kernel with a fused activation (`ActivationFunctionWithMinMax` of `internal/common.h`).

LiteRT clamps to the range of single precision where there is no activation; NaN stays.
"""

from collections.abc import Callable

import numpy as np

from runtime.model.schema import ActivationFunctionType
from runtime.ops.support.context import OpContext
from runtime.ops.support.quantization import float_activation_range
from runtime.ops.support.value import Array

LARGEST = float(np.finfo(np.float32).max)
"""The largest finite float32: an infinity becomes this number (`CalculateActivationRange` of LiteRT)."""


def clamp_floats(rows: Array, clamp: tuple[float, float] | None) -> None:
    """Clamp float32 `rows` in place; None stands for the whole finite range."""
    if clamp is not None:
        np.clip(rows, *clamp, out=rows)
    # The sum of squares is finite for nearly every tensor: one read, where a clamp would read and write.
    elif not np.isfinite(np.vdot(rows, rows)):
        np.clip(rows, -LARGEST, LARGEST, out=rows)


def fused_clamp(op: OpContext) -> Callable[[Array], object]:
    """Return the option's clamp for float32, float16 or integers, which works in place.

    Integers stay as they are where there is no activation. Raises `UnsupportedOperatorError` for an
    activation of complex numbers, and for one that is not a clamp.
    """
    activation, dtype = op.activation(), op.write().dtype
    if dtype.kind == "c":
        if activation is not ActivationFunctionType.NONE:
            raise op.unsupported(f"a fused activation on {op.output().type.name}")
        return lambda _: None
    bounds = float_activation_range(activation)
    if dtype == np.float32:
        return lambda y: clamp_floats(y, bounds)
    if bounds is None and dtype.kind in "iu":
        return lambda _: None
    # The bounds are cut to the type: RELU's upper one, the largest float32, is beyond float16 and integers.
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    least, most = (float(v) if dtype.kind == "f" else int(v) for v in (limits.min, limits.max))
    low, high = (dtype.type(min(max(v, least), most)) for v in bounds or (least, most))
    return lambda y: np.clip(y, low, high, out=y)
