"""Every promise of LiteRT's documents names tests that exist, or says what the delegate lacks."""

import ast

import pytest

from runtime.delegates.gpu.lowering import families
from tests.needs import REPOSITORY
from tests.runtime.delegates.gpu.promises import PROMISES

DOCUMENTED = """
    ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D EXP FULLY_CONNECTED LOGICAL_AND LOGISTIC LSTM
    MAX_POOL_2D MAXIMUM MINIMUM MUL PAD PRELU RELU RELU6 RESHAPE RESIZE_BILINEAR SOFTMAX STRIDED_SLICE SUB
    TRANSPOSE_CONV
"""
"""The 24 operators of the page on the GPU delegate; the older page names 19 of them."""

LISTED = """
    ABS ADD ADD_N AVERAGE_POOL_2D BATCH_MATMUL CAST CONCATENATION CONV_2D COS CUMSUM DENSIFY DEPTHWISE_CONV_2D
    DEPTH_TO_SPACE DEQUANTIZE DIV EQUAL ELU EXP FLOOR FLOOR_DIV FLOOR_MOD FULLY_CONNECTED GATHER GELU GREATER
    GREATER_EQUAL HARD_SWISH LESS LESS_EQUAL LOGISTIC LOG LOGICAL_AND LSTM MAXIMUM MAX_POOL_2D MEAN MINIMUM
    MIRROR_PAD MUL NEG NOT_EQUAL ONE_HOT PACK PAD PADV2 POW REDUCE_MAX REDUCE_MIN REDUCE_PROD QUANTIZE RELU
    RELU6 RELU_0_TO_1 RELU_N1_TO_1 LEAKY_RELU PRELU RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR RSQRT
    SELECT SELECT_V2 SIGN SIN SLICE SOFTMAX SPACE_TO_DEPTH SPLIT SPLIT_V SQRT SQUARE SQUARED_DIFFERENCE
    STRIDED_SLICE SUB SUM TANH TILE TRANSPOSE TRANSPOSE_CONV UNPACK CONVOLUTION_2D_TRANSPOSE_BIAS
    ARG_MAX ATAN2 BITCAST BITWISE_XOR CEIL DYNAMIC_UPDATE_SLICE EMBEDDING_LOOKUP LOGICAL_NOT LOGICAL_OR
    REDUCE_ALL REDUCE_ANY REVERSE_V2 RIGHT_SHIFT ROUND TOPK_V2 STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CBRT
    STABLEHLO_CLAMP STABLEHLO_REMAINDER STABLEHLO_SHIFT_LEFT
"""
"""The operators of the classic GPU delegate, and those that LiteRT Next has besides."""

LACKING = "DENSIFY"
"""Those of them that have no kernel here: it unpacks a constant, which is done as the model is read."""


def kinds():
    return {kind.name for kind in families()}


def functions(path):
    tree = ast.parse((REPOSITORY / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: str(promise.row))
def test_a_promise_is_held_by_tests_or_says_what_is_lacking(promise):
    assert promise.tests or promise.lacks
    for test in promise.tests:
        path, _, name = test.partition("::")
        assert name in functions(path), f"{path} has no test {name}"


def test_every_row_is_there_once():
    rows = [promise.row for promise in PROMISES]
    assert rows == sorted(set(rows))
    assert rows == list(range(19, 53))


def test_the_operators_of_litert_s_documents_have_kernels():
    assert set(DOCUMENTED.split()) <= kinds()


def test_few_operators_of_litert_s_lists_lack_kernels():
    assert set(LISTED.split()) - kinds() <= set(LACKING.split())
