"""The kind of an output follows from the graph, and from what a campaign file says."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.judge.agreement import Expected, OutputFacts, judge
from runtime.judge.kinds import OutputKind, Stated, UnknownOutputError, output_kinds
from runtime.judge.rules import Rule
from runtime.model.graph import Model
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Builder, per_tensor

FP32 = Rule("floats", 1e-4, "fp32")
AXIS = np.array([1], np.int32)


def arg_max(*, shown: bool = False, reshaped: bool = False, cast: bool = False) -> Model:
    """ARG_MAX, perhaps with its candidates as an output, and perhaps something behind it."""
    builder = Builder()
    scores, axis = builder.input(np.float32, (2, 5)), builder.constant(AXIS)
    found = _behind(builder, Op.ARG_MAX, [scores, axis], np.int32, (2,))
    if reshaped:
        shape = builder.constant(np.array([2, 1], np.int32))
        found = _behind(builder, Op.RESHAPE, [found, shape], np.int32, (2, 1))
    if cast:
        found = _behind(builder, Op.CAST, [found], np.float32, (2,))
    return builder.model([found, scores] if shown else [found])


def _behind(builder: Builder, opcode: Op, inputs: list[int], dtype: type, shape: tuple[int, ...]) -> int:
    output = builder.tensor(dtype, shape)
    builder.operator(opcode, inputs, [output])
    return output


def top_k() -> Model:
    builder = Builder()
    scores, k = builder.input(np.float32, (2, 5)), builder.constant(np.int32(3))
    values, indices = builder.tensor(np.float32, (2, 3)), builder.tensor(np.int32, (2, 3))
    builder.operator(Op.TOPK_V2, [scores, k], [values, indices])
    return builder.model([indices, values])


def detector(outputs: tuple[int, ...] = (0, 1, 2, 3)) -> Model:
    builder = Builder()
    inputs = [builder.input(np.float32, shape) for shape in ((1, 6, 4), (1, 6, 3), (6, 4))]
    found = [builder.tensor(np.float32, shape) for shape in ((1, 5, 4), (1, 5), (1, 5), (1,))]
    builder.operator(Op.CUSTOM, inputs, found, custom_code="TFLite_Detection_PostProcess")
    return builder.model([found[i] for i in outputs])


def quantised() -> Model:
    builder = Builder()
    x = builder.input(np.int8, (1, 4), per_tensor(0.1))
    y = builder.tensor(np.int8, (1, 4), per_tensor(1 / 256, -128))
    builder.operator(Op.LOGISTIC, [x], [y])
    return builder.model([y])


CASES = {
    "float": (arg_max(shown=True), ["index", "value"]),
    "argmax": (arg_max(), ["index"]),
    "argmax reshaped": (arg_max(reshaped=True), ["index"]),
    "argmax as float": (arg_max(cast=True), ["index"]),
    "top k": (top_k(), ["index", "value"]),
    "detector": (detector(), ["detections"] * 4),
    "detector without count": (detector((2, 0, 1)), ["detections"] * 3),
    "classes alone": (detector((1,)), ["index"]),
    "no boxes": (detector((1, 2, 3)), ["index", "value", "index"]),
    "quantised": (quantised(), ["value"]),
}


@pytest.mark.parametrize("case", CASES)
def test_kinds_are_found_from_the_graph(case: str) -> None:
    model, kinds = CASES[case]
    assert [one.kind for one in output_kinds(model, {})] == kinds


def test_roles_follow_the_operator_and_not_the_order_of_the_outputs() -> None:
    assert [one.role for one in output_kinds(detector((2, 0, 1)), {})] == ["scores", "boxes", "classes"]


def test_what_is_stated_goes_before_the_graph() -> None:
    model = arg_max()
    (name,) = (model.subgraphs[0].tensors[i].name for i in model.subgraphs[0].outputs)
    assert output_kinds(model, {name: ("value", None)}) == (OutputKind("value"),)


@pytest.mark.parametrize(
    ("stated", "text"),
    [
        ({"nothing": ("index", None)}, "no output 'nothing'"),
        ({"t2": ("detections", "boxes")}, "detections are boxes, classes, scores"),
    ],
)
def test_what_cannot_be_is_refused(stated: Stated, text: str) -> None:
    model = arg_max()
    name = model.subgraphs[0].tensors[model.subgraphs[0].outputs[0]].name
    with pytest.raises(UnknownOutputError, match=text):
        output_kinds(model, {name if key == "t2" else key: one for key, one in stated.items()})


TIED = np.float32([[0.5, 0.1, 0.50000001, 0, 0], [0.1, 0.9, 0.2, 0, 0]])


@pytest.mark.parametrize(
    ("chosen", "verdict"),
    [([0, 1], "pass"), ([2, 1], "pass"), ([0, 2], "fail"), ([2, 0], "fail")],
)
def test_an_index_of_two_equal_candidates_is_undecided(chosen: list[int], verdict: str) -> None:
    kinds = output_kinds(arg_max(shown=True), {})
    assert kinds[0].candidates == 1
    references = [[np.int32([0, 1]), TIED], [np.int32([3, 4]), 1 - TIED]]
    facts = [OutputFacts("index"), OutputFacts("scores")]
    found = judge(Expected(references, facts, kinds=kinds), [[np.int32(chosen), TIED]], FP32, sets=[0])
    assert found.verdict == verdict
    assert found.equal == np.mean(np.array(chosen) == [0, 1])


@pytest.mark.parametrize(
    ("chosen", "verdict"), [([4, 2, 1], "pass"), ([4, 1, 2], "pass"), ([2, 4, 1], "fail")]
)
def test_neighbours_of_a_sorted_list_may_change_places_where_they_are_equal(
    chosen: list[int], verdict: str
) -> None:
    kinds = output_kinds(top_k(), {})
    values = np.float32([[0.9, 0.4, 0.4]])
    references = [[np.int32([[4, 2, 1]]), values], [np.int32([[0, 3, 1]]), values / 2]]
    expected = Expected(references, [OutputFacts("index"), OutputFacts("values")], kinds=kinds)
    assert judge(expected, [[np.int32([chosen]), values]], FP32, sets=[0]).verdict == verdict


def test_float_class_ids_are_judged_by_how_many_differ() -> None:
    references = [[np.float32([[3.0, 5.0]])], [np.float32([[1.0, 2.0]])]]
    kinds = (OutputKind("index"),)
    expected = Expected(references, [OutputFacts("classes")], kinds=kinds)
    assert judge(expected, references, FP32).verdict == "pass"
    assert judge(expected, [[np.float32([[3.00001, 5.0]])]], FP32, sets=[0]).verdict == "fail"
