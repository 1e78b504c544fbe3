"""CONV_3D against LiteRT's reference kernels."""

from __future__ import annotations

import pytest

from runtime.model.schema import ActivationFunctionType, BuiltinOperator, Padding
from tests.runtime.ops.cases import Case, case, check, constant, random
from tests.runtime.ops.matmul.test_conv import NONE, RELU, RELU6, SAME, VALID


def options(padding: Padding, stride, dilation, activation: ActivationFunctionType):
    return {
        "padding": padding,
        **{f"stride_{axis}": s for axis, s in zip("dhw", stride, strict=True)},
        **{f"dilation_{axis}_factor": d for axis, d in zip("dhw", dilation, strict=True)},
        "fused_activation_function": activation,
    }


def conv(name, x, w, padding=SAME, stride=(1, 1, 1), dilation=(1, 1, 1), activation=NONE, bias=True) -> Case:
    args = [random(*x), constant(random(*w, seed=1)), constant(random(w[4], seed=2)) if bias else None]
    given = options(padding, stride, dilation, activation)
    return case(name, BuiltinOperator.CONV_3D, args, options=given)


CASES = [
    conv("same", (2, 5, 6, 7, 3), (3, 3, 3, 3, 4)),
    conv("no_bias_relu", (1, 4, 5, 6, 2), (2, 3, 1, 2, 5), activation=RELU, bias=False),
    conv("valid_strides_relu6", (1, 7, 8, 9, 2), (3, 2, 3, 2, 4), VALID, (2, 1, 3), activation=RELU6),
    conv("same_strides_even", (1, 8, 8, 8, 2), (3, 3, 3, 2, 3), stride=(2, 2, 2)),
    conv("dilated_same", (1, 9, 8, 10, 2), (2, 3, 2, 2, 3), dilation=(2, 1, 3)),
    conv("dilated_valid", (1, 9, 8, 10, 2), (2, 3, 2, 2, 3), VALID, dilation=(3, 2, 1)),
    conv("pointwise", (1, 3, 4, 5, 6), (1, 1, 1, 6, 7)),
    conv("frames_apart", (2, 3, 9, 8, 16), (1, 3, 3, 16, 24), activation=RELU),
    conv("frames_apart_strides", (1, 5, 9, 8, 3), (1, 3, 2, 3, 7), stride=(1, 2, 3), dilation=(1, 1, 1)),
    conv("every_other_frame", (1, 5, 4, 4, 5), (1, 1, 1, 5, 3), stride=(2, 1, 1)),
    conv("over_frames_alone", (2, 7, 3, 4, 16), (3, 1, 1, 16, 20), stride=(2, 1, 1), activation=RELU),
    conv("over_frames_dilated", (4, 7, 3, 4, 1), (3, 1, 1, 1, 1), dilation=(2, 1, 1)),
    conv("one_window", (2, 3, 4, 5, 7), (3, 4, 5, 7, 9), VALID),
    conv("many_channels", (1, 3, 3, 3, 255), (2, 2, 2, 255, 255)),
    conv("wide_panels", (1, 3, 5, 6, 33), (3, 3, 3, 33, 72), bias=False),
    conv("every_other_cell", (2, 5, 7, 6, 12), (1, 1, 1, 12, 20), stride=(2, 2, 2), activation=RELU),
    conv("many_pieces", (1, 4, 40, 40, 16), (3, 3, 3, 16, 8)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_conv_3d_matches_litert(case, backend):
    check(case, backend)
