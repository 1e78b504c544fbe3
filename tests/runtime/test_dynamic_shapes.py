"""Shapes that only running tells: planned again when the values change, and only then. Against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api import interpreter as ours
from runtime.api.interpreter import Interpreter
from runtime.delegates.base import GraphFacts, Partition, Unsupported
from runtime.errors import InvocationError
from runtime.model.graph import Operator
from runtime.model.schema import BuiltinOperator
from tests.oracle import call_in_litert
from tests.runtime import scripts
from tests.runtime.graphs import check_invocations
from tests.runtime.models import Builder
from tests.runtime.test_interpreter import same

Op = BuiltinOperator


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def reshaping() -> bytes:
    """-(reshape(relu(x), s * 1)) and -x: the shape is computed, the second output does not depend on it."""
    b = Builder()
    x, s = b.input(np.float32, (2, 3)), b.input(np.int32, (2,))
    shape, y = b.tensor(np.int32, (2,)), b.tensor(np.float32, (2, 3))
    z, out, other = b.tensor(np.float32, (2, 3)), b.tensor(np.float32, (2, 3)), b.tensor(np.float32, (2, 3))
    b.operator(Op.MUL, [s, b.constant(ints(1, 1))], [shape])
    b.operator(Op.RELU, [x], [y])
    b.operator(Op.NEG, [x], [other])
    b.operator(Op.RESHAPE, [y, shape], [z])
    b.operator(Op.NEG, [z], [out])
    return b.write([out, other])


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_computed_shape_gives_the_output_its_shape():
    feeds = [[X, ints(*s)] for s in ((3, 2), (3, 2), (1, 6), (-1, 2), (3, 2))]
    b = Builder()
    x, s = b.input(np.float32, (2, 3)), b.input(np.int32, (2,))
    shape, y, z = b.tensor(np.int32, (2,)), b.tensor(np.float32, (2, 3)), b.tensor(np.float32, (2, 3))
    b.operator(Op.MUL, [s, b.constant(ints(1, 1))], [shape])
    b.operator(Op.RESHAPE, [x, shape], [y])
    b.operator(Op.NEG, [y], [z])
    found = check_invocations(b.write([z]), feeds)
    assert [outputs[0].shape for outputs in found] == [(3, 2), (3, 2), (1, 6), (3, 2), (3, 2)]


def test_details_tell_the_shape_after_the_run():
    expected = call_in_litert("tests.runtime.scripts:shapes_around_a_run", reshaping(), [X, ints(6, 1)])
    same(scripts.shapes_around_a_run(ours, reshaping(), [X, ints(6, 1)]), expected)


def test_the_same_values_are_not_planned_again():
    interpreter = Interpreter(model_content=reshaping())
    interpreter.allocate_tensors()
    plans = []
    for shape in ((3, 2), (3, 2), (6, 1), (6, 1)):
        interpreter.set_tensor(0, X)
        interpreter.set_tensor(1, ints(*shape))
        interpreter.invoke()
        plans.append(interpreter._primary.last)
    assert plans[0] is plans[1]
    assert plans[1] is not plans[2]
    assert plans[2] is plans[3]


def test_values_that_do_not_fit_are_an_error_of_the_run():
    interpreter = Interpreter(model_content=reshaping())
    interpreter.allocate_tensors()
    interpreter.set_tensor(1, ints(4, 4))
    with pytest.raises(InvocationError, match=r"operator 3 RESHAPE: 6 elements do not fill shape \[4, 4\]"):
        interpreter.invoke()
    interpreter.set_tensor(1, ints(2, 3))
    interpreter.invoke()
    assert interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).shape == (2, 3)


def test_kept_intermediates_of_later_segments_are_readable():
    interpreter = Interpreter(model_content=reshaping(), experimental_preserve_all_tensors=True)
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, X)
    interpreter.set_tensor(1, ints(6, 1))
    interpreter.invoke()
    values = {i: interpreter.get_tensor(i) for i in range(6)}
    np.testing.assert_array_equal(values[4], X.reshape(6, 1))
    np.testing.assert_array_equal(values[2], ints(6, 1))


def test_a_model_with_an_unknown_dimension_runs_with_every_batch():
    b = Builder()
    x = b.tensor(np.float32, (1, 4), shape_signature=(-1, 4))
    y = b.tensor(np.float32, (1, 4), shape_signature=(-1, 4))
    b.inputs.append(x)
    b.operator(Op.ADD, [x, b.constant(np.ones(4, np.float32))], [y])
    feeds = [[np.full((n, 4), n, np.float32)] for n in (1, 5, 3)]
    check_invocations(b.write([y]), feeds)


class Everything:
    """A delegate that would take any operator."""

    name = "everything"
    max_delegated_partitions = 9

    def supports(self, graph: GraphFacts, operator: Operator) -> Unsupported | None:
        return None

    def compile(self, partition: Partition) -> Everything:
        self.taken = [o.index for o in partition.operators]
        return self

    def invoke(self, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        return None

    def close(self) -> None:
        return None

    def describe(self) -> dict[str, str]:
        return {}


def test_delegates_take_only_what_has_a_shape_before_the_run():
    delegate = Everything()
    interpreter = Interpreter(model_content=reshaping(), experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    report = interpreter.delegation
    assert report is not None
    assert [f.index for f in report.fallbacks] == [3, 4]
    assert {f.reason for f in report.fallbacks} == {"its shapes are known at run time only"}
    assert delegate.taken == [0, 1, 2]


def test_a_shape_in_a_variable_is_zero_until_something_writes_it():
    """No operator touches the variable before its value is asked for."""
    b = Builder()
    x, shape, y = (
        b.input(np.float32, (2, 3)),
        b.tensor(np.int32, (2,), is_variable=True),
        b.tensor(np.float32),
    )
    b.operator(BuiltinOperator.RESHAPE, [x, shape], [y])
    interpreter = Interpreter(model_content=b.write([y]))
    interpreter.allocate_tensors()
    with pytest.raises(InvocationError, match=r"operator 0 RESHAPE: 6 elements do not fill shape \[0, 0\]"):
        interpreter.invoke()
