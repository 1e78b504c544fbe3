"""The end of a float kernel with a fused activation (`ActivationFunctionWithMinMax` of `internal/common.h`).

LiteRT clamps to the range of single precision where there is no activation: what overflowed becomes the
largest number. NaN stays.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from runtime.model.schema import ActivationFunctionType
from runtime.ops.support.context import OpContext
from runtime.ops.support.value import Array
from runtime.quantization import float_activation_range

LARGEST = float(np.finfo(np.float32).max)


def clamp_floats(rows: Array, clamp: tuple[float, float] | None) -> None:
    """Clamp float32 `rows` in place; None stands for the whole range, and costs one look at the values."""
    if clamp is not None:
        np.clip(rows, *clamp, out=rows)
    elif not np.isfinite(np.vdot(rows, rows)):
        np.clip(rows, -LARGEST, LARGEST, out=rows)


def fused_clamp(op: OpContext) -> Callable[[Array], None]:
    """What ends a kernel of float32, float16 or integers: the option's clamp in place.

    Integers are left alone where there is no activation. Raises `UnsupportedOperatorError`.
    """
    activation, dtype = op.activation(), op.write().dtype
    if dtype.kind == "c":
        if activation is not ActivationFunctionType.NONE:
            raise op.unsupported(f"a fused activation on {op.output().type.name}")
        return _nothing
    bounds = float_activation_range(activation)
    if dtype == np.float32:
        return lambda y: clamp_floats(y, bounds)
    if bounds is None and dtype.kind in "iu":
        return _nothing
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    least, most = (float(v) if dtype.kind == "f" else int(v) for v in (limits.min, limits.max))
    low, high = (dtype.type(min(max(v, least), most)) for v in bounds or (least, most))

    def clamp(y: Array) -> None:
        np.clip(y, low, high, out=y)

    return clamp


def _nothing(_: Array) -> None:
    return None
