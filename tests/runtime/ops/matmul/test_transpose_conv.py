"""TRANSPOSE_CONV against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.errors import ShapeError
from runtime.interpreter import Interpreter
from runtime.model.schema import BuiltinOperator
from tests.runtime.models import const, one_operator
from tests.runtime.ops.cases import Case, case, check, constant, random
from tests.runtime.ops.matmul.test_conv import NONE, RELU, SAME, VALID

TRANSPOSE_CONV = BuiltinOperator.TRANSPOSE_CONV


def transpose_conv(name, x, w, out, stride, padding, bias=False, activation=NONE) -> Case:
    args = [const(out, np.int32), constant(random(*w, seed=1)), random(*x), constant(random(w[0], seed=2))]
    options = {
        "padding": padding,
        "stride_h": stride,
        "stride_w": stride,
        "fused_activation_function": activation,
    }
    version = 4 if activation else 3 if bias else 1
    return case(name, TRANSPOSE_CONV, args[: 3 + bias], options=options, version=version)


CASES = [
    transpose_conv("same_stride2", (1, 4, 5, 3), (6, 3, 3, 3), (1, 8, 10, 6), 2, SAME),
    transpose_conv("same_odd_output", (1, 4, 5, 3), (6, 3, 3, 3), (1, 7, 9, 6), 2, SAME),
    transpose_conv("valid_2x2", (2, 4, 5, 3), (4, 2, 2, 3), (2, 8, 10, 4), 2, VALID),
    transpose_conv("valid_3x3_bias", (1, 4, 5, 3), (4, 3, 3, 3), (1, 9, 11, 4), 2, VALID, bias=True),
    transpose_conv("stride1_relu", (1, 6, 5, 3), (4, 3, 3, 3), (1, 6, 5, 4), 1, SAME, True, RELU),
    transpose_conv("stride3_small_filter", (1, 3, 3, 2), (4, 2, 2, 2), (1, 9, 9, 4), 3, SAME),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_transpose_conv_matches_litert(case, backend):
    check(case, backend)


def test_an_output_shape_of_other_channels_is_refused():
    args = [const((1, 8, 8, 5), np.int32), constant(random(6, 3, 3, 3)), random(1, 4, 4, 3)]
    model = one_operator(TRANSPOSE_CONV, args, options={"stride_h": 2, "stride_w": 2})
    with pytest.raises(ShapeError, match=r"output shape \[1, 8, 8, 5\]"):
        Interpreter(model_content=model).allocate_tensors()
