"""A signature's graph as the first one of a file, against LiteRT's signature runner on the file itself."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.errors import ModelFormatError
from runtime.model.graph import Signature
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.signatures import signature_file
from tests.oracle import call_in_litert, run_litert
from tests.runtime.api.test_interpreter_api import binary, f32, two_signatures
from tests.runtime.graphs import several
from tests.runtime.models import Builder


def choosing() -> bytes:
    """Build a second graph whose IF and CALL refer to graphs on both sides of it."""
    first, chosen = Builder(), Builder()
    x = first.input(np.float32, (2,))
    y = first.tensor(np.float32, (2,))
    first.operator(Op.NEG, [x], [y])
    c, v = chosen.input(np.bool_, (1,)), chosen.input(np.float32, (2,))
    picked, done = chosen.tensor(np.float32, (2,)), chosen.tensor(np.float32, (2,))
    chosen.operator(Op.IF, [c, v], [picked], {"then_subgraph_index": 0, "else_subgraph_index": 2})
    chosen.operator(Op.ABS, [picked], [done])
    signature = Signature("choose", 1, (("flag", c), ("value", v)), (("size", done),))
    return several((first, [y]), (chosen, [done]), binary(Op.MUL, f32(3), (2,)), signatures=[signature])


@pytest.mark.parametrize(
    ("model", "key", "values"),
    [
        (two_signatures(), "pair", {"first": f32(1, 2), "second": f32(3, 5)}),
        (two_signatures(), "alone", {"value": np.ones((1, 3), np.float32)}),
        (choosing(), "choose", {"flag": np.array([True]), "value": f32(-1, 2)}),
        (choosing(), "choose", {"flag": np.array([False]), "value": f32(-1, 2)}),
    ],
    ids=["first graph", "second graph", "then", "else"],
)
def test_the_graph_of_a_signature_runs_as_the_signature_does(model, key, values):
    expected = call_in_litert("tests.runtime.model.test_signatures:run_by_key", model, key, values)
    made = signature_file(model, key)
    graph = read_model(made).subgraphs[0]
    inputs = [graph.tensors[index].name for index in graph.inputs]
    assert sorted(inputs) == sorted(values)
    outputs = run_litert(made, [values[name] for name in inputs])
    names = [graph.tensors[index].name for index in graph.outputs]
    assert sorted(names) == sorted(expected)
    for name, value in zip(names, outputs, strict=True):
        np.testing.assert_array_equal(value, expected[name])


def run_by_key(litert, model, key, values):
    return litert.Interpreter(model_content=model).get_signature_runner(key)(**values)


def test_the_signatures_stay_with_the_chosen_one_first():
    made = read_model(signature_file(two_signatures(), "alone"))
    assert [(one.key, one.subgraph_index) for one in made.signatures] == [("alone", 0), ("pair", 1)]


def test_an_unknown_signature_is_refused_with_the_known_ones():
    with pytest.raises(ModelFormatError, match="no signature 'other'; the model has pair, alone"):
        signature_file(two_signatures(), "other")
