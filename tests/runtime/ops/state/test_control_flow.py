"""IF, WHILE, CALL, CALL_ONCE, STABLEHLO_CASE and STABLEHLO_COMPOSITE, against LiteRT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from runtime.api import interpreter as ours
from runtime.api.interpreter import Interpreter
from runtime.errors import InvocationError, ModelError
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.state import control_flow
from tests.runtime import scripts
from tests.runtime.graphs import check_invocations, several
from tests.runtime.models import Builder

Op = BuiltinOperator


def binary(
    opcode: BuiltinOperator, constant: np.ndarray, shape: tuple[int, ...]
) -> tuple[Builder, list[int]]:
    """x ∘ constant."""
    b = Builder()
    x = b.input(constant.dtype, shape)
    y = b.tensor(constant.dtype, shape)
    b.operator(opcode, [x, b.constant(constant)], [y])
    return b, [y]


def f32(*values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def conditional(then: Any, otherwise: Any) -> bytes:
    b = Builder()
    condition, x = b.input(np.bool_, (1,)), b.input(np.float32, (2,))
    y, z = b.tensor(np.float32, (2,)), b.tensor(np.float32, (2,))
    options = {"then_subgraph_index": 1, "else_subgraph_index": 2}
    b.operator(Op.IF, [condition, x], [y], options)
    b.operator(Op.NEG, [y], [z])
    return several((b, [z, y]), then, otherwise)


TRUE, FALSE = np.array([True]), np.array([False])


def test_if_runs_the_branch_of_its_condition():
    model = conditional(binary(Op.ADD, f32(10), (2,)), binary(Op.MUL, f32(3), (2,)))
    feeds = [[TRUE, f32(1, 2)], [FALSE, f32(1, 2)], [TRUE, f32(5, 6)]]
    found = check_invocations(model, feeds)
    assert found[1][0].tolist() == [-3, -6]


def test_branches_of_different_shapes_give_shapes_at_run_time():
    padded = Builder()
    x = padded.input(np.float32, (2,))
    y = padded.tensor(np.float32, (4,))
    padded.operator(Op.PAD, [x, padded.constant(np.array([[1, 1]], np.int32))], [y])
    model = conditional((padded, [y]), binary(Op.MUL, f32(3), (2,)))
    found = check_invocations(model, [[TRUE, f32(1, 2)], [FALSE, f32(1, 2)], [FALSE, f32(3, 4)]])
    assert [outputs[0].shape for outputs in found] == [(4,), (2,), (2,)]


def loop(condition: Any, body: Any, *inputs: np.ndarray) -> bytes:
    b = Builder()
    given = [b.input(a.dtype, a.shape) for a in inputs]
    made = [b.tensor(a.dtype, a.shape) for a in inputs]
    b.operator(Op.WHILE, given, made, {"cond_subgraph_index": 1, "body_subgraph_index": 2})
    return several((b, made), condition, body)


def below(limit: int, *others: tuple[int, ...]) -> tuple[Builder, list[int]]:
    b = Builder()
    counter = b.input(np.int32, (1,))
    for shape in others:
        b.input(np.float32, shape)
    result = b.tensor(np.bool_, (1,))
    b.operator(Op.LESS, [counter, b.constant(np.array([limit], np.int32))], [result])
    return b, [result]


def counting(b: Builder) -> int:
    counter = b.input(np.int32, (1,))
    after = b.tensor(np.int32, (1,))
    b.operator(Op.ADD, [counter, b.constant(np.array([1], np.int32))], [after])
    return after


def test_while_runs_until_its_condition_fails():
    body = Builder()
    after = counting(body)
    x = body.input(np.float32, (3,))
    y = body.tensor(np.float32, (3,))
    body.operator(Op.MUL, [x, body.constant(f32(2))], [y])
    model = loop(below(5, (3,)), (body, [after, y]), np.zeros(1, np.int32), np.zeros(3, np.float32))
    feeds = [[np.array([n], np.int32), f32(1, 2, 3)] for n in (0, 3, 9)]
    found = check_invocations(model, feeds)
    assert found[0][1].tolist() == [32, 64, 96]


def exchanging(through_operators: bool) -> bytes:
    body = Builder()
    after = counting(body)
    x, y = body.input(np.float32, (2,)), body.input(np.float32, (2,))
    outputs = [after, y, x]
    if through_operators:
        outputs = [after, body.tensor(np.float32, (2,)), body.tensor(np.float32, (2,))]
        for source, made in ((y, outputs[1]), (x, outputs[2])):
            body.operator(Op.ADD, [source, body.constant(f32(1))], [made])
    condition = below(3, (2,), (2,))
    return loop(condition, (body, outputs), np.zeros(1, np.int32), f32(0, 0), f32(0, 0))


def test_while_exchanges_its_variables():
    found = check_invocations(exchanging(True), [[np.zeros(1, np.int32), f32(1, 2), f32(3, 4)]])
    assert [a.tolist() for a in found[0]] == [[3], [6, 7], [4, 5]]


def test_while_hands_inputs_through_in_another_order():
    """LiteRT copies one over the other here; the graph says that they change places."""
    feed = [np.zeros(1, np.int32), f32(1, 2), f32(3, 4)]
    (found,) = scripts.invoke_each(ours, exchanging(False), [feed])
    assert [a.tolist() for a in found] == [[3], [3, 4], [1, 2]]


def test_while_may_grow_its_variables():
    body = Builder()
    after = counting(body)
    x = body.input(np.float32, (1, 2))
    y = body.tensor(np.float32, (2, 2))
    body.operator(Op.CONCATENATION, [x, x], [y], {"axis": 0})
    model = loop(below(3, (1, 2)), (body, [after, y]), np.zeros(1, np.int32), np.zeros((1, 2), np.float32))
    found = check_invocations(model, [[np.array([n], np.int32), f32([1, 2])] for n in (0, 2, 5)])
    assert [outputs[1].shape for outputs in found] == [(8, 2), (2, 2), (1, 2)]


def endless() -> bytes:
    condition, body = Builder(), Builder()
    condition.input(np.float32, (1,))
    yes = condition.constant(np.array([True]))
    x = body.input(np.float32, (1,))
    y = body.tensor(np.float32, (1,))
    body.operator(Op.NEG, [x], [y])
    return loop((condition, [yes]), (body, [y]), f32(1))


def test_a_loop_without_end_is_an_error(monkeypatch):
    monkeypatch.setattr(control_flow, "MAX_LOOP_ITERATIONS", 1000)
    interpreter = Interpreter(model_content=endless())
    interpreter.allocate_tensors()
    with pytest.raises(InvocationError, match="operator 0 WHILE: the loop did not end within 1000 iter"):
        interpreter.invoke()


def calling(opcode: BuiltinOperator, options: dict[str, Any], *parts: Any) -> bytes:
    b = Builder()
    x = b.input(np.float32, (2,))
    y, z = b.tensor(np.float32, (2,)), b.tensor(np.float32, (2,))
    b.operator(opcode, [x], [y], options)
    b.operator(Op.NEG, [y], [z])
    return several((b, [z]), *parts)


def test_a_composite_is_its_decomposition():
    options = {"name": "odml.test", "decomposition_subgraph_index": 1, "version": 1}
    model = calling(Op.STABLEHLO_COMPOSITE, options, binary(Op.ADD, f32(10), (2,)))
    check_invocations(model, [[f32(1, 2)], [f32(3, 4)], [f32(*range(4))]])


def test_call_runs_its_subgraph():
    model = calling(Op.CALL, {"subgraph": 1}, binary(Op.MUL, f32(3), (2,)))
    interpreter = Interpreter(model_content=model)
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, f32(1, 2))
    interpreter.invoke()
    assert interpreter.get_tensor(2).tolist() == [-3, -6]


@pytest.mark.parametrize(("at", "added"), [(0, 10), (1, 20), (2, 30), (-1, 30), (7, 30)])
def test_case_runs_the_branch_of_its_index(at, added):
    b = Builder()
    index, x = b.input(np.int32, (1,)), b.input(np.float32, (2,))
    y = b.tensor(np.float32, (2,))
    b.operator(Op.STABLEHLO_CASE, [index, x], [y], {"branch_subgraph_indices": (1, 2, 3)})
    branches = [binary(Op.ADD, f32(n), (2,)) for n in (10, 20, 30)]
    feeds = [[np.array([at], np.int32), f32(1, 2)]]
    found = check_invocations(several((b, [y]), *branches), feeds, resolver="BUILTIN")
    assert found[0][0].tolist() == [1 + added, 2 + added]


def test_call_once_initialises_once():
    """The subgraph assigns 7 to a variable; the model adds its input to it each time."""
    b, first = Builder(), Builder()
    x = b.input(np.float32, (1,))
    handle, old, new = (
        b.tensor(np.int32, (1,), type=TensorType.RESOURCE),
        b.tensor(np.float32, (1,)),
        b.tensor(np.float32, (1,)),
    )
    name = {"container": "", "shared_name": "v"}
    b.operator(Op.CALL_ONCE, [], [], {"init_subgraph_index": 1})
    b.operator(Op.VAR_HANDLE, [], [handle], name)
    b.operator(Op.READ_VARIABLE, [handle], [old])
    b.operator(Op.ADD, [old, x], [new])
    b.operator(Op.ASSIGN_VARIABLE, [handle, new], [])
    target = first.tensor(np.int32, (1,), type=TensorType.RESOURCE)
    first.operator(Op.VAR_HANDLE, [], [target], name)
    first.operator(Op.ASSIGN_VARIABLE, [target, first.constant(f32(7))], [])
    found = check_invocations(several((b, [new]), (first, [])), [[f32(1)], [f32(2)], [f32(3)]])
    assert [outputs[0].tolist() for outputs in found] == [[8], [10], [13]]


def test_subgraphs_in_a_circle_are_refused():
    def calls(index: int) -> tuple[Builder, list[int]]:
        b = Builder()
        x, y = b.input(np.float32, (2,)), b.tensor(np.float32, (2,))
        b.operator(Op.CALL, [x], [y], {"subgraph": index})
        return b, [y]

    with pytest.raises(ModelError, match="in a circle: 0 → 1 → 2 → 1"):
        Interpreter(model_content=several(calls(1), calls(2), calls(1)))
    with pytest.raises(ModelError, match="operator 0 CALL: calls subgraph 4 of 2"):
        Interpreter(model_content=several(calls(1), calls(4)))
    with pytest.raises(ModelError, match="nest deeper than 32"):
        Interpreter(model_content=several(*(calls(i + 1) for i in range(70)), binary(Op.ADD, f32(1), (2,))))
