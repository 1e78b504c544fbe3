"""TRANSPOSE_CONV against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import ShapeError
from runtime.model.schema import BuiltinOperator
from tests.oracle import call_in_litert
from tests.runtime.models import Builder, const, one_operator
from tests.runtime.ops.cases import Case, case, check, compare, constant, random
from tests.runtime.ops.matmul.test_conv import NONE, RELU, RELU6, SAME, VALID

TRANSPOSE_CONV = BuiltinOperator.TRANSPOSE_CONV


def transpose_conv(name, x, w, out, stride, padding, bias=False, activation=NONE) -> Case:
    args = [const(out, np.int32), constant(random(*w, seed=1)), random(*x), constant(random(w[0], seed=2))]
    stride_h, stride_w = stride if isinstance(stride, tuple) else (stride, stride)
    options = {
        "padding": padding,
        "stride_h": stride_h,
        "stride_w": stride_w,
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
    transpose_conv("one_channel", (4, 3, 4, 1), (1, 3, 3, 1), (4, 6, 8, 1), 2, SAME, bias=True),
    transpose_conv("seven_channels", (2, 3, 4, 7), (5, 5, 4, 7), (2, 9, 8, 5), (3, 2), SAME, True, RELU6),
    transpose_conv("many_channels", (1, 4, 3, 255), (255, 3, 3, 255), (1, 8, 6, 255), 2, SAME, bias=True),
    transpose_conv("wide_panels", (1, 7, 9, 40), (72, 4, 4, 40), (1, 14, 18, 72), 2, SAME, bias=True),
    transpose_conv("one_pixel", (3, 1, 1, 5), (3, 4, 5, 5), (3, 4, 5, 3), (4, 5), VALID, bias=True),
    transpose_conv("shorter_than_the_stride", (1, 1, 1, 3), (4, 5, 5, 3), (1, 2, 3, 4), 4, SAME, bias=True),
    transpose_conv("pointwise", (2, 5, 6, 3), (4, 1, 1, 3), (2, 5, 6, 4), 1, VALID, True, RELU),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_transpose_conv_matches_litert(case, backend):
    check(case, backend)


def test_an_output_shape_of_other_channels_is_refused():
    args = [const((1, 8, 8, 5), np.int32), constant(random(6, 3, 3, 3)), random(1, 4, 4, 3)]
    model = one_operator(TRANSPOSE_CONV, args, options={"stride_h": 2, "stride_w": 2})
    with pytest.raises(ShapeError, match=r"output shape \[1, 8, 8, 5\]"):
        Interpreter(model_content=model).allocate_tensors()


def with_a_shape_as_input(declared: tuple[int, ...]) -> tuple[bytes, int]:
    """Return a model that doubles an image of 4 by 5, and its output, which is declared with a shape."""
    b, rng = Builder(), np.random.default_rng(2)
    shape, x = b.input(np.int32, (4,)), b.input(np.float32, (1, 4, 5, 3))
    weights = b.constant(rng.standard_normal((2, 3, 3, 3)).astype(np.float32))
    y = b.tensor(np.float32, declared)
    options = {"padding": SAME, "stride_h": 2, "stride_w": 2}
    b.operator(BuiltinOperator.TRANSPOSE_CONV, [shape, weights, x], [y], options)
    return b.write([y]), y


def test_a_shape_that_is_an_input_is_planned_as_the_file_declares_it(gpu):
    """Streaming decoders have it: taken whole; an input that asks for another shape plans the model again."""
    model, y = with_a_shape_as_input((1, 8, 10, 2))
    image = np.random.default_rng(5).standard_normal((1, 4, 5, 3)).astype(np.float32)
    feeds = [[np.array([1, h, w, 2], np.int32), image] for h, w in ((8, 10), (8, 10), (7, 9), (8, 10))]
    expected = call_in_litert("tests.runtime.scripts:invoke_each", model, feeds)
    interpreter = Interpreter(model_content=model, experimental_delegates=[gpu.delegate])
    interpreter.allocate_tensors()
    for run, (feed, (theirs,)) in enumerate(zip(feeds, expected, strict=True)):
        for details, value in zip(interpreter.get_input_details(), feed, strict=True):
            interpreter.set_tensor(details["index"], value)
        interpreter.invoke()
        compare(interpreter.get_tensor(y), theirs)
        fallbacks = [f.reason for f in interpreter.delegation.fallbacks]
        assert fallbacks == ([] if run < 2 else ["its shapes are known at run time only"])


def test_a_declared_shape_that_cannot_be_is_not_believed(gpu):
    """Some converters declare ones where they know nothing; such a model runs as without a delegate."""
    model, y = with_a_shape_as_input((3, 1, 1, 7))
    feed = [np.array([1, 8, 10, 2], np.int32), np.ones((1, 4, 5, 3), np.float32)]
    interpreter = Interpreter(model_content=model, experimental_delegates=[gpu.delegate])
    interpreter.allocate_tensors()
    (fallback,) = interpreter.delegation.fallbacks
    assert fallback.reason == "its shapes are known at run time only"
    for details, value in zip(interpreter.get_input_details(), feed, strict=True):
        interpreter.set_tensor(details["index"], value)
    interpreter.invoke()
    ((expected,),) = call_in_litert("tests.runtime.scripts:invoke_each", model, [feed])
    compare(interpreter.get_tensor(y), expected)
