"""Registration of kernels: by opcode or name, once, up to a version."""

from __future__ import annotations

import pytest

from runtime.errors import UnsupportedOperatorError
from runtime.model.graph import Operator
from runtime.model.schema import BuiltinOperator as Op
from runtime.ops.support import registry
from runtime.ops.support.registry import SPECS, find_spec, operator
from runtime.ops.support.shapes import same_shape


def test_a_second_kernel_for_an_operator_is_an_error_that_names_both():
    with pytest.raises(ValueError, match=r"RELU is registered by runtime\.ops\.elementwise\.\w+ and "):
        operator(Op.RELU, max_version=1, infer=same_shape)(lambda _op: lambda: None)


def test_one_registration_serves_several_operators(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTRY", {})
    register = operator(Op.ADD, Op.SUB, max_version=4, infer=same_shape, stateful=True)
    prepare = register(lambda _op: lambda: None)
    assert registry._REGISTRY[Op.ADD] is registry._REGISTRY[Op.SUB]
    assert registry._REGISTRY[Op.ADD].prepare is prepare
    assert registry._REGISTRY[Op.ADD].stateful


def test_an_operator_is_found_up_to_its_highest_version():
    known = SPECS[Op.RELU].max_version
    assert find_spec(Operator(3, Op.RELU, known, (), ())) is SPECS[Op.RELU]
    with pytest.raises(UnsupportedOperatorError, match=f"knows versions up to {known}") as raised:
        find_spec(Operator(3, Op.RELU, known + 1, (), ()))
    assert (raised.value.operator_name, raised.value.version, raised.value.index) == ("RELU", known + 1, 3)


def test_an_operator_without_a_kernel_is_refused():
    absent = next(opcode for opcode in Op if opcode not in SPECS and opcode is not Op.CUSTOM)
    with pytest.raises(UnsupportedOperatorError, match="the CPU path has no kernel for this operator"):
        find_spec(Operator(3, absent, 1, (), ()))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Flexible", "needs TensorFlow's own kernels"),
        ("Mine", "custom_operator registers a kernel"),
    ],
)
def test_an_unknown_custom_operator_says_what_would_help(name, text):
    with pytest.raises(UnsupportedOperatorError, match=text):
        find_spec(Operator(3, Op.CUSTOM, 1, (), (), custom_code=name))
