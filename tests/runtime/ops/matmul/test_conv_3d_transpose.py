"""CONV_3D_TRANSPOSE against LiteRT's reference kernels."""

from __future__ import annotations

import pytest

from runtime.model.schema import BuiltinOperator
from tests.runtime.models import const
from tests.runtime.ops.cases import Case, case, check, constant, random
from tests.runtime.ops.matmul.test_conv import NONE, RELU, SAME, VALID
from tests.runtime.ops.matmul.test_conv_3d import options


def transposed(
    name, out, w, x, padding=SAME, stride=(1, 1, 1), dilation=(1, 1, 1), activation=NONE, bias=True
) -> Case:
    args = [
        const(out, "int32"),
        constant(random(*w, seed=1)),
        random(*x),
        constant(random(w[3], seed=2)) if bias else None,
    ]
    given = options(padding, stride, dilation, activation)
    return case(name, BuiltinOperator.CONV_3D_TRANSPOSE, args, options=given)


CASES = [
    transposed("valid", (1, 5, 6, 7, 3), (2, 3, 3, 3, 4), (1, 4, 4, 5, 4), VALID),
    transposed("same_strides", (2, 6, 8, 4, 3), (3, 3, 3, 3, 2), (2, 3, 4, 2, 2), stride=(2, 2, 2)),
    transposed("relu", (1, 4, 5, 6, 2), (3, 2, 3, 2, 3), (1, 4, 5, 6, 3), activation=RELU),
    transposed("valid_strides", (1, 7, 9, 8, 2), (3, 3, 2, 2, 3), (1, 3, 4, 4, 3), VALID, (2, 2, 2)),
    transposed("no_bias", (1, 4, 4, 5, 17), (2, 2, 2, 17, 5), (1, 3, 3, 4, 5), VALID, bias=False),
    transposed("dilated", (1, 7, 8, 9, 3), (2, 3, 2, 3, 16), (1, 5, 4, 8, 16), VALID, dilation=(2, 2, 1)),
    transposed(
        "strides_wider_than_taps", (1, 7, 3, 9, 1), (1, 1, 2, 1, 7), (1, 3, 3, 3, 7), VALID, (3, 1, 3)
    ),
    transposed("many_channels", (3, 2, 3, 2, 255), (2, 2, 2, 255, 33), (3, 1, 2, 1, 33), VALID),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_conv_3d_transpose_matches_litert(case, backend):
    check(case, backend)
