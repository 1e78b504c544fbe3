"""The interface of an operator: its questions about its tensors, and the error of each."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.errors import ShapeError, UnsupportedOperatorError
from runtime.model.graph import Quantization
from runtime.model.schema import ActivationFunctionType, TensorType
from runtime.ops.support.context import MAX_INTEGERS, MAX_TENSOR_BYTES, OpContext, PostponeError
from tests.runtime.models import per_channel, per_tensor
from tests.runtime.ops.contexts import bound, context, shaped

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_an_input_that_is_left_out_is_none_or_an_error():
    op = context([bound(X), None])
    assert op.optional(1) is op.optional(2) is None
    with pytest.raises(ShapeError, match="operator 3 ADD: input 1 is missing"):
        op.input(1)
    with pytest.raises(ShapeError, match="operator 3 ADD: output 0 is missing"):
        op.output()


def test_memory_is_that_of_the_constant_or_of_the_bound_array():
    held, fixed = X.copy(), X + 1
    op = context([bound(held), bound(fixed, constant=True)], [bound(held)])
    assert op.read(0) is held
    assert op.read(1) is fixed
    assert op.write() is held
    with pytest.raises(UnsupportedOperatorError, match="input 0 of type FLOAT32 has no numpy form"):
        context([shaped(2)]).read()


def test_values_that_are_not_known_yet_postpone_planning():
    op = context([shaped(2)])
    with pytest.raises(PostponeError, match=r"operator 3 ADD: axes \(input 0\) is computed") as postponed:
        op.constant(0, "axes")
    assert (postponed.value.operator, postponed.value.tensor) == (3, 0)
    assert op.shapes_at_run_time().tensor is None


def test_integers_are_flat_and_bounded_in_number():
    axes = bound(np.array([[1, 2], [3, 4]], np.int32), constant=True)
    assert context([axes]).integers(0, "axes") == (1, 2, 3, 4)
    many = bound(np.zeros(MAX_INTEGERS + 1, np.int32), constant=True)
    with pytest.raises(ShapeError, match=r"axes \(input 0\) has 65537 elements"):
        context([many]).integers(0, "axes")


def test_a_delivered_output_is_copied_into_its_memory_or_handed_on():
    y = np.zeros((2, 3), np.float32)
    context(outputs=[bound(y)]).deliver(0, X)
    np.testing.assert_array_equal(y, X)
    handed = []
    late = context(outputs=[shaped(0)])
    OpContext(late.operator, (), late.outputs, sink=lambda i, a: handed.append((i, a))).deliver(0, X)
    assert handed[0][1] is X


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (X.astype(np.int32), "output 0 became int32 where FLOAT32 is declared"),
        (X.T.copy(), r"output 0 became \[3, 2\] where \[2, 3\] is planned"),
    ],
)
def test_a_delivered_output_of_another_form_is_refused(array, text):
    with pytest.raises(ShapeError, match=text):
        context(outputs=[bound(X.copy())]).deliver(0, array)


def test_a_workspace_is_bounded_before_memory_is_asked_for():
    assert context().temporary((2, 3)).shape == (2, 3)
    with pytest.raises(ShapeError, match="is too large to plan"):
        context().temporary((MAX_TENSOR_BYTES // 4 + 1,))


@pytest.mark.parametrize("kind", [ActivationFunctionType.TANH, ActivationFunctionType.SIGN_BIT])
def test_an_activation_that_kernels_cannot_clamp_is_refused(kind):
    with pytest.raises(UnsupportedOperatorError, match=f"fused activation {kind.name} is not defined"):
        context(options={"fused_activation_function": kind}).activation()


@pytest.mark.parametrize(
    ("quantization", "text"),
    [
        (None, "no per-tensor scale"),
        (per_channel([0.1, 0.2]), "no per-tensor scale"),
        (Quantization((0.0,), (0,)), "a scale of 0"),
    ],
)
def test_a_tensor_without_one_scale_is_refused(quantization, text):
    op = context([bound(X, quantization)])
    with pytest.raises(UnsupportedOperatorError, match=text):
        op.scale_and_zero_point(op.input())


def test_one_scale_and_zero_point_are_returned():
    op = context([bound(X, per_tensor(0.5, 7))])
    assert op.scale_and_zero_point(op.input()) == (0.5, 7)


def test_types_are_required_by_name():
    op = context([bound(X), shaped(2, kind=TensorType.INT8)], [bound(X)])
    assert op.require(TensorType.FLOAT32) is TensorType.FLOAT32
    with pytest.raises(UnsupportedOperatorError, match="input 1 has type INT8; the CPU kernel has FLOAT32"):
        op.require(TensorType.FLOAT32, i=1)
    with pytest.raises(UnsupportedOperatorError, match="output 0 has type FLOAT32; the CPU kernel gives"):
        op.require_output(TensorType.INT8)
    with pytest.raises(UnsupportedOperatorError, match="mixed types FLOAT32, INT8"):
        op.require_same_type(0, 1)


def test_an_operator_without_a_model_has_no_services():
    alone = OpContext(context().operator, (), ())
    assert alone.num_threads == 1
    with pytest.raises(UnsupportedOperatorError, match="it cannot run outside a model"):
        _ = alone.services
