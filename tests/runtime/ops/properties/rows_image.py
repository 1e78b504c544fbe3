"""Pooling and resizing of [N, H, W, C]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from runtime.model.schema import BuiltinOperator, Padding, TensorType
from tests.runtime.models import Arg
from tests.runtime.ops.properties.rows import Built, Row, of_terms
from tests.runtime.ops.properties.rows_arithmetic import ACTIVATIONS
from tests.runtime.ops.properties.strategies import Operands, fixed_or_fed

Op = BuiltinOperator
T = TensorType
LEVELS = (T.INT8, T.UINT8, T.INT16)
TYPES = (T.FLOAT32, *LEVELS)
COPIED = (*TYPES, T.FLOAT16, T.UINT16, T.INT32, T.UINT32, T.BOOL)
LARGEST = of_terms(lambda inputs: float(np.abs(inputs[0][np.isfinite(inputs[0])]).max(initial=0.0)))


def image(draw: DrawFn, o: Operands, **more: Any) -> Any:
    sides = [draw(st.integers(1, 9)) for _ in range(2)]
    shape = (draw(st.integers(1, 2)), *sides, draw(st.sampled_from([1, 2, 3, 5, 17])))
    return o.arg(*shape, quantization=o.levels(), **more)


def pooled(*, finite: bool = False) -> Callable[[DrawFn, Operands], Built]:
    """Windows of every size that fits; the levels of the result are the operand's."""

    def build(draw: DrawFn, o: Operands) -> Built:
        x = image(draw, o, finite=finite, low=-10.0, high=10.0)
        padding = draw(st.sampled_from([Padding.SAME, Padding.VALID]))
        sides = x.value.shape[1:3] if padding is Padding.VALID else (9, 9)
        options = {
            "padding": padding,
            "filter_height": draw(st.integers(1, sides[0])),
            "filter_width": draw(st.integers(1, sides[1])),
            "stride_h": draw(st.integers(1, 3)),
            "stride_w": draw(st.integers(1, 3)),
            "fused_activation_function": draw(st.sampled_from(ACTIVATIONS)),
        }
        return [x], [o.out(x.quantization)], options

    return build


def resized(draw: DrawFn, o: Operands) -> Built:
    x = image(draw, o, finite=True)
    if o.type is T.FLOAT32:  # What overflows between two pixels does so in the order of the operations.
        x = Arg(np.clip(x.value, -1e30, 1e30))
    size = [draw(st.integers(1, 20)) for _ in range(2)]
    mode = draw(st.sampled_from([{}, {"align_corners": True}, {"half_pixel_centers": True}]))
    return [x, fixed_or_fed(draw, size, np.int32)], [o.out(x.quantization)], mode


ROWS = [
    Row("windows", Op.MAX_POOL_2D, TYPES, pooled()),
    Row("windows", Op.AVERAGE_POOL_2D, TYPES, pooled(finite=True), LARGEST),
    Row("windows", Op.L2_POOL_2D, (T.FLOAT32,), pooled(finite=True), LARGEST),
    Row("sizes", Op.RESIZE_BILINEAR, TYPES, resized, LARGEST),
    Row("sizes", Op.RESIZE_NEAREST_NEIGHBOR, COPIED, resized),
]
