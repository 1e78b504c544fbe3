"""Resource variables and variable tensors, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api import interpreter as ours
from runtime.api.interpreter import Interpreter
from runtime.errors import InvocationError
from runtime.model.graph import Signature
from runtime.model.schema import BuiltinOperator, TensorType
from tests.oracle import call_in_litert
from tests.runtime import scripts
from tests.runtime.graphs import check_invocations, several
from tests.runtime.models import Builder

Op = BuiltinOperator
NAME = {"container": "c", "shared_name": "v"}


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def handle_of(b: Builder) -> int:
    handle = b.tensor(np.int32, (1,), type=TensorType.RESOURCE)
    b.operator(Op.VAR_HANDLE, [], [handle], NAME)
    return handle


def reading(declared: tuple[int, ...], dtype: type = np.float32) -> tuple[Builder, list[int]]:
    b = Builder()
    value = b.tensor(dtype, declared, name="value")
    b.operator(Op.READ_VARIABLE, [handle_of(b)], [value])
    return b, [value]


def assigning(shape: tuple[int, ...], dtype: type = np.float32) -> tuple[Builder, list[int]]:
    b = Builder()
    x = b.input(dtype, shape)
    b.operator(Op.ASSIGN_VARIABLE, [handle_of(b), x], [])
    done = b.tensor(dtype, shape)
    b.operator(Op.NEG, [x], [done])
    return b, [done]


def stored(declared: tuple[int, ...]) -> bytes:
    """Two entry points that share one variable."""
    signatures = [
        Signature("put", 0, (("x", 0),), (("done", 2),)),
        Signature("get", 1, (), (("value", 0),)),
    ]
    return several(assigning((2,)), reading(declared), signatures=signatures)


@pytest.mark.parametrize("declared", [(2,), ()], ids=str)
def test_subgraphs_share_a_variable(declared):
    expected = call_in_litert("tests.runtime.scripts:put_and_get", stored(declared), [f32(1, 2), f32(3, 4)])
    found = scripts.put_and_get(ours, stored(declared), [f32(1, 2), f32(3, 4)])
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert found[1].tolist() == [3, 4]


def test_interpreters_do_not_share_a_variable():
    scripts.put_and_get(ours, stored((2,)), [f32(1, 2)])
    with pytest.raises(RuntimeError, match="operator 1 READ_VARIABLE: the variable was never assigned"):
        Interpreter(model_content=stored((2,))).get_signature_runner("get")()


def test_a_variable_of_another_shape_than_declared_is_an_error():
    with pytest.raises(InvocationError, match=r"output 0 became \[2\] where \[3\] is planned"):
        scripts.put_and_get(ours, stored((3,)), [f32(1, 2)])


def of_two_types() -> bytes:
    """Four entry points that share one variable: real numbers or integers are put into it, and read."""
    types = (np.float32, np.int32)
    puts = [Signature(f"put_{t.__name__}", i, (("x", 0),), (("done", 2),)) for i, t in enumerate(types)]
    gets = [Signature(f"get_{t.__name__}", 2 + i, (), (("value", 0),)) for i, t in enumerate(types)]
    graphs = [assigning((2,), t) for t in types] + [reading((2,), t) for t in types]
    return several(*graphs, signatures=puts + gets)


def test_a_variable_takes_over_the_type_of_the_value():
    values = [f32(1.5, 2.5), np.int32([3, 4]), f32(5.5, 6.5)]
    expected = call_in_litert("tests.runtime.scripts:put_and_get_types", of_two_types(), values)
    found = scripts.put_and_get_types(ours, of_two_types(), values)
    for mine, theirs, value in zip(found, expected, values, strict=True):
        assert mine.dtype == theirs.dtype == value.dtype
        np.testing.assert_array_equal(mine, theirs)


def state() -> bytes:
    """Build an SVDF whose state is a variable tensor: [2, 3] inputs, 2 units, memory of 4, rank 1."""
    b = Builder()
    rng = np.random.default_rng(5)
    x = b.input(np.float32, (2, 3))
    feature = b.constant(rng.standard_normal((2, 3)).astype(np.float32))
    time = b.constant(rng.standard_normal((2, 4)).astype(np.float32))
    memory = b.tensor(np.float32, (2, 8), is_variable=True)
    y = b.tensor(np.float32, (2, 2))
    b.operator(Op.SVDF, [x, feature, time, -1, memory], [y], {"rank": 1})
    return b.write([y])


def test_a_variable_tensor_keeps_its_value_until_it_is_reset():
    feed = np.ones((2, 3), np.float32)
    expected = call_in_litert("tests.runtime.scripts:run_and_reset", state(), feed)
    found = scripts.run_and_reset(ours, state(), feed)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    assert not np.array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_reading_comes_after_assigning_in_the_order_of_the_file():
    """No tensor connects the two; the assigned shape is known at run time only."""
    b = Builder()
    x, shape = b.input(np.float32, (4,)), b.input(np.int32, (2,))
    made, seen = b.tensor(np.float32, ()), b.tensor(np.float32, ())
    b.operator(Op.RESHAPE, [x, shape], [made])
    b.operator(Op.ASSIGN_VARIABLE, [handle_of(b), made], [])
    b.operator(Op.READ_VARIABLE, [handle_of(b)], [seen])
    feeds = [[f32(1, 2, 3, 4), np.array(s, np.int32)] for s in ((2, 2), (4, 1), (4, 1))]
    found = check_invocations(b.write([seen]), feeds)
    assert [outputs[0].shape for outputs in found] == [(2, 2), (4, 1), (4, 1)]


def streaming() -> bytes:
    """Build a stream as keyword spotters have it: a variable, which starts filled, keeps the last frames.

    Frames [1, 1, 3] are joined to the two before; a product over all three is the output. A second entry
    point reads the variable.
    """
    b, first = Builder(), Builder()
    rng = np.random.default_rng(8)
    x, old = b.input(np.float32, (1, 1, 3)), b.tensor(np.float32, (1, 2, 3))
    joined, kept = b.tensor(np.float32, (1, 3, 3)), b.tensor(np.float32, (1, 2, 3))
    flat, y = b.tensor(np.float32, (1, 9)), b.tensor(np.float32, (1, 2))
    weights = b.constant(rng.standard_normal((2, 9)).astype(np.float32))
    b.operator(Op.CALL_ONCE, [], [], {"init_subgraph_index": 1})
    handle = handle_of(b)
    b.operator(Op.READ_VARIABLE, [handle], [old])
    b.operator(Op.CONCATENATION, [old, x], [joined], {"axis": 1})
    begin, size = b.constant(np.int32([0, 1, 0])), b.constant(np.int32([1, 2, 3]))
    b.operator(Op.SLICE, [joined, begin, size], [kept])
    b.operator(Op.ASSIGN_VARIABLE, [handle, kept], [])
    b.operator(Op.RESHAPE, [joined, b.constant(np.int32([1, 9]))], [flat])
    b.operator(Op.FULLY_CONNECTED, [flat, weights, -1], [y])
    start = first.constant(rng.standard_normal((1, 2, 3)).astype(np.float32))
    first.operator(Op.ASSIGN_VARIABLE, [handle_of(first), start], [])
    reader, (content,) = reading((1, 2, 3))
    signatures = [
        Signature("step", 0, (("x", x),), (("y", y),)),
        Signature("get", 2, (), (("value", content),)),
    ]
    return several((b, [y]), (first, []), (reader, [content]), signatures=signatures)


def test_a_stream_is_taken_whole_and_its_variable_stays_the_interpreter_s(gpu):
    """Its outputs are LiteRT's; another subgraph, on the CPU, finds what the last run has assigned."""
    frames = [np.float32([[[i, -i, i * i]]]) for i in range(5)]
    expected = call_in_litert("tests.runtime.scripts:invoke_each", streaming(), [[f] for f in frames])
    interpreter = Interpreter(model_content=streaming(), experimental_delegates=[gpu.delegate])
    interpreter.allocate_tensors()
    assert interpreter.delegation.status == "full", str(interpreter.delegation)
    step, content = interpreter.get_signature_runner("step"), interpreter.get_signature_runner("get")
    for frame, (theirs,) in zip(frames, expected, strict=True):
        np.testing.assert_allclose(step(x=frame)["y"], theirs, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(content()["value"], np.concatenate(frames[-2:], axis=1))


def test_every_run_of_a_profile_runs_the_border_too(gpu):
    """A counter that begins with 5: the profile's five runs and one more add the input six times."""
    b, first = Builder(), Builder()
    x, old, new = (b.input(np.float32, (2,)), b.tensor(np.float32, (2,)), b.tensor(np.float32, (2,)))
    b.operator(Op.CALL_ONCE, [], [], {"init_subgraph_index": 1})
    handle = handle_of(b)
    b.operator(Op.READ_VARIABLE, [handle], [old])
    b.operator(Op.ADD, [old, x], [new])
    b.operator(Op.ASSIGN_VARIABLE, [handle, new], [])
    first.operator(Op.ASSIGN_VARIABLE, [handle_of(first), first.constant(f32(5, 5))], [])
    model = several((b, [new]), (first, []))
    interpreter = Interpreter(model_content=model, experimental_delegates=[gpu.delegate])
    interpreter.allocate_tensors()
    assert interpreter.delegation.status == "full", str(interpreter.delegation)
    interpreter.set_tensor(x, f32(1, 10))
    profile = interpreter.profile(rounds=2)
    interpreter.invoke()
    assert interpreter.get_tensor(new).tolist() == [5 + 6, 5 + 60]
    assert {index for row in profile.rows for index in row.operators} >= {3}


def refusals(build: Builder, outputs: list[int], gpu: object, *parts: tuple[Builder, list[int]]) -> set[str]:
    model = several((build, outputs), *parts)
    interpreter = Interpreter(model_content=model, experimental_delegates=[gpu])
    interpreter.allocate_tensors()
    return {f"{f.op}: {f.reason}" for f in interpreter.delegation.fallbacks}


def test_what_cannot_stand_at_a_partition_s_border_stays_on_the_cpu(gpu):
    """A read behind an assignment, an initialisation behind a read, variables with nothing around them."""
    b, first = Builder(), Builder()
    x, y, z = b.input(np.float32, (2,)), b.tensor(np.float32, (2,)), b.tensor(np.float32, (2,))
    b.operator(Op.NEG, [x], [y])
    handle = handle_of(b)
    b.operator(Op.ASSIGN_VARIABLE, [handle, y], [])
    b.operator(Op.READ_VARIABLE, [handle], [z])
    b.operator(Op.CALL_ONCE, [], [], {"init_subgraph_index": 1})
    first.operator(Op.ASSIGN_VARIABLE, [handle_of(first), first.constant(f32(7, 8))], [])
    assert refusals(b, [z], gpu.delegate, (first, [])) == {
        "READ_VARIABLE: operator 2 ASSIGN_VARIABLE assigns its variable before it",
        "CALL_ONCE: operator 2 ASSIGN_VARIABLE comes before it",
    }
    reader, outputs = reading((2,))
    alone = "no other operator around it runs on gpu"
    assert refusals(reader, outputs, gpu.delegate) == {f"VAR_HANDLE: {alone}", f"READ_VARIABLE: {alone}"}
    fed = Builder()
    handle, value = fed.input(np.int32, (1,)), fed.tensor(np.float32, (2,))
    negative = fed.tensor(np.float32, (2,))
    fed.operator(Op.READ_VARIABLE, [handle], [value])
    fed.operator(Op.NEG, [value], [negative])
    elsewhere = "READ_VARIABLE: its variable's handle is made elsewhere"
    assert refusals(fed, [negative], gpu.delegate) == {elsewhere}
