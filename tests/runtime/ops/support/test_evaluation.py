"""Operators run by themselves: results, and the errors that name them."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.errors import ShapeError, UnsupportedOperatorError
from runtime.model.graph import Operator
from runtime.model.schema import ActivationFunctionType, BuiltinOperator
from runtime.ops.support.context import PostponeError
from runtime.ops.support.evaluation import evaluate, infer_shapes, named_failures, prepare_kernel
from runtime.ops.support.registry import OpSpec
from tests.runtime.ops.contexts import bound, context, shaped

NONE = {"fused_activation_function": ActivationFunctionType.NONE}
ADD = Operator(3, BuiltinOperator.ADD, 1, (), (), NONE)
ONES = np.ones((2, 3), np.float32)


def test_constants_are_computed_once():
    inputs = [bound(ONES, constant=True), bound(2 * ONES, constant=True)]
    (found,) = evaluate(ADD, inputs, [shaped(2, 3)])
    np.testing.assert_array_equal(found, 3 * ONES)


def test_a_kernel_with_nothing_to_compute_is_not_prepared():
    empty = np.zeros((0, 3), np.float32)
    prepare_kernel(context([bound(empty), bound(empty)], [bound(empty)]))()


def test_the_types_of_a_registration_are_asked_for_before_the_kernel():
    words = bound(np.array([b"a"], object))
    with pytest.raises(UnsupportedOperatorError, match="input 0 has type STRING"):
        prepare_kernel(context([words, words], [words], NONE))


@pytest.mark.parametrize("error", [KeyError("axis"), IndexError("7"), ValueError("a shape"), TypeError("no")])
def test_what_a_kernel_did_not_foresee_names_the_operator(error):
    def infer(_op):
        raise error

    spec = OpSpec(1, infer, lambda _op: lambda: None)
    expected = f"operator 3 ADD version 1: it cannot take these tensors: {type(error).__name__}"
    with pytest.raises(UnsupportedOperatorError, match=expected) as raised:
        infer_shapes(spec, context())
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("error", [ShapeError("mine"), PostponeError("later", 3), MemoryError("full")])
def test_errors_with_a_meaning_of_their_own_pass(error):
    with pytest.raises(type(error)) as raised, named_failures(ADD):
        raise error
    assert raised.value is error
