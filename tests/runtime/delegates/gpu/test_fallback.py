"""State, and partitions whose build fails, stay on the CPU beside the delegate."""

from dataclasses import replace

import numpy as np
import pytest

from delegate_farm import load_delegate
from runtime.api.interpreter import Interpreter
from runtime.delegates.gpu.layout import source
from runtime.delegates.gpu.lowering import families
from runtime.errors import DelegateError
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import TensorType
from tests.runtime.graphs import several
from tests.runtime.models import Builder

OPTIONS = {"tuning": "none", "persistent": "off", "cache_dir": ""}


def once_initialised() -> bytes:
    """CALL_ONCE sets a variable to 7; each run adds the input's absolute value to it."""
    b, first = Builder(), Builder()
    x = b.input(np.float32, (1,))
    handle = b.tensor(np.int32, (1,), type=TensorType.RESOURCE)
    magnitude, old, new = (b.tensor(np.float32, (1,)) for _ in range(3))
    name = {"container": "", "shared_name": "v"}
    b.operator(Op.CALL_ONCE, [], [], {"init_subgraph_index": 1})
    b.operator(Op.ABS, [x], [magnitude])
    b.operator(Op.VAR_HANDLE, [], [handle], name)
    b.operator(Op.READ_VARIABLE, [handle], [old])
    b.operator(Op.ADD, [old, magnitude], [new])
    b.operator(Op.ASSIGN_VARIABLE, [handle, new], [])
    target = first.tensor(np.int32, (1,), type=TensorType.RESOURCE)
    first.operator(Op.VAR_HANDLE, [], [target], name)
    first.operator(Op.ASSIGN_VARIABLE, [target, first.constant(np.float32([7]))], [])
    return several((b, [new]), (first, []))


@pytest.mark.parametrize("most", [1, 2, 5])
def test_operators_without_results_are_the_border_of_a_partition(most):
    delegate = load_delegate("gpu", {**OPTIONS, "max_delegated_partitions": most})
    interpreter = Interpreter(model_content=once_initialised(), experimental_delegates=[delegate])
    assert not interpreter.delegation.fallbacks, str(interpreter.delegation)
    interpreter.allocate_tensors()
    found = []
    for value in (-1, 2, -3):
        interpreter.set_tensor(0, np.float32([value]))
        interpreter.invoke()
        found.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).tolist())
    assert found == [[8], [10], [13]]
    interpreter.close()


def soft_and_round() -> bytes:
    b = Builder()
    x, soft, y = b.input(np.float32, (2, 21)), b.tensor(np.float32), b.tensor(np.float32)
    b.operator(Op.SOFTMAX, [x], [soft], {"beta": 1.0})
    b.operator(Op.ABS, [soft], [y])
    return b.write([y])


def turned_in_the_middle() -> bytes:
    """Two products of matrices around an operator without OpenCL kernels."""
    b, random = Builder(), np.random.default_rng(5)
    x, first, turned, second = (b.tensor(np.float32, (1, 64, 96)) for _ in range(4))
    b.inputs.append(x)
    weights = [b.constant(random.standard_normal((96, 96)).astype(np.float32) / 10) for _ in range(2)]
    options = {"keep_num_dims": True}
    b.operator(Op.FULLY_CONNECTED, [x, weights[0], -1], [first], options)
    lengths = b.constant(np.array([40], np.int32))
    b.operator(Op.REVERSE_SEQUENCE, [first, lengths], [turned], {"seq_dim": 1, "batch_dim": 0})
    b.operator(Op.FULLY_CONNECTED, [turned, weights[1], -1], [second], options)
    return b.write([second])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("most", "taken"), [(1, 1), (2, 2)])
def test_an_operator_in_the_middle_runs_on_the_cpu_with_litert_s_warning(most, taken, caplog):
    delegate = load_delegate(
        "gpu", {**OPTIONS, "max_delegated_partitions": most, "cost_aware_partitioning": False}
    )
    x = np.random.default_rng(6).standard_normal((1, 64, 96)).astype(np.float32)
    outputs = []
    for delegates in ([], [delegate]):
        interpreter = Interpreter(model_content=turned_in_the_middle(), experimental_delegates=delegates)
        interpreter.allocate_tensors()
        interpreter.set_tensor(0, x)
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-5, atol=1e-5)
    why = "FULLY_CONNECTED: supported, but in a smaller partition than the 1 that gpu may take"
    # A slow compiler has lines of its own.
    (message,) = (line for line in caplog.messages if line.startswith("Following"))
    expected = ["Following operations are not supported by GPU delegate:"]
    expected += [why] if most == 1 else []
    expected += ["REVERSE_SEQUENCE: no OpenCL kernel for this operator", ""]
    left = f"the remaining {3 - taken} operations will run on the CPU."
    assert message.splitlines() == [*expected, f"{taken} operations will run on the GPU, and {left}"]
    assert interpreter.delegation.partitions == taken


@pytest.fixture
def broken_softmax(monkeypatch):
    """Break one kernel for the driver's compiler: its source has an error."""
    intact = source.kernel_source

    def broken(name: str) -> str:
        return intact(name) + ("#error this driver cannot\n" if name == "reduction/softmax.cl" else "")

    monkeypatch.setattr(source, "kernel_source", broken)


@pytest.mark.usefixtures("broken_softmax")
def test_a_partition_whose_build_fails_runs_on_the_cpu_and_the_report_says_why(backend):
    delegate = load_delegate("gpu", OPTIONS)
    interpreter = Interpreter(model_content=soft_and_round(), experimental_delegates=[delegate])
    assert interpreter.delegation.status == "full"
    interpreter.allocate_tensors()
    assert interpreter.delegation.status == "none"
    assert [f.op for f in interpreter.delegation.fallbacks] == ["SOFTMAX", "ABS"]
    for fallback in interpreter.delegation.fallbacks:
        assert fallback.reason.startswith("its partition could not be compiled: gpu delegate: ")
        assert backend.capabilities.name in fallback.reason
        assert "softmax.cl:" in fallback.reason
        assert "this driver cannot" in fallback.reason
        assert "\n" not in fallback.reason
    (failure,) = interpreter.delegation.failures
    assert (failure.delegate, failure.operators) == ("gpu", (0, 1))
    assert failure.reason in fallback.reason
    assert failure.log.startswith(failure.reason + "\n"), "what the compiler said besides is there too"
    interpreter.set_tensor(0, np.zeros((2, 21), np.float32))
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    np.testing.assert_allclose(found, 1 / 21, rtol=1e-6)


@pytest.mark.usefixtures("broken_softmax")
def test_where_full_delegation_is_required_a_failed_build_is_an_error():
    delegate = load_delegate("gpu", {**OPTIONS, "require_full_delegation": True})
    interpreter = Interpreter(model_content=soft_and_round(), experimental_delegates=[delegate])
    with pytest.raises(
        DelegateError, match=r"Disallowed CPU fallback.*\n.*\n.*softmax\.cl:.*this driver cannot"
    ):
        interpreter.allocate_tensors()


def test_a_defect_of_a_lowering_leaves_the_model_to_the_cpu_and_the_report_says_so(monkeypatch, caplog):
    def defective(node, context):
        raise IndexError("tuple index out of range")

    (family,) = families()[Op.SOFTMAX]
    monkeypatch.setitem(families(), Op.SOFTMAX, (replace(family, lower=defective),))
    interpreter = Interpreter(
        model_content=soft_and_round(), experimental_delegates=[load_delegate("gpu", OPTIONS)]
    )
    interpreter.allocate_tensors()
    assert interpreter.delegation.status == "none"
    for fallback in interpreter.delegation.fallbacks:
        assert "a defect of the delegate, please report it with the model: IndexError" in fallback.reason
    assert "test_fallback.py" in caplog.text, "the traceback says where"
    interpreter.invoke()


def test_an_operator_that_the_delegate_stumbles_over_stays_on_the_cpu_and_the_report_says_so(
    monkeypatch, caplog
):
    def defective(facts):
        raise IndexError("tuple index\nout of range")

    family = families()[Op.SOFTMAX][0]
    monkeypatch.setitem(families(), Op.SOFTMAX, (replace(family, supports=defective),))
    delegate = load_delegate("gpu", {**OPTIONS, "cost_aware_partitioning": False})
    interpreter = Interpreter(model_content=soft_and_round(), experimental_delegates=[delegate])
    assert [(f.op, f.reason) for f in interpreter.delegation.fallbacks] == [
        (
            "SOFTMAX",
            "a defect of the delegate, please report it with the model: IndexError: tuple index out of range",
        )
    ]
    assert "in defective" in caplog.text, "the traceback says where"
    interpreter.allocate_tensors()
    interpreter.invoke()


def test_a_driver_that_fails_to_allocate_leaves_the_model_to_the_cpu(monkeypatch, backend):
    import pyopencl

    class Full:
        def __init__(self, *_, **__):
            raise pyopencl.MemoryError("clCreateBuffer failed: MEM_OBJECT_ALLOCATION_FAILURE")

    monkeypatch.setattr(pyopencl, "Buffer", Full)
    interpreter = Interpreter(
        model_content=soft_and_round(), experimental_delegates=[load_delegate("gpu", OPTIONS)]
    )
    interpreter.allocate_tensors()
    (failure,) = interpreter.delegation.failures
    assert f"allocating memory on {backend.capabilities.name}: " in failure.reason
    assert "MEM_OBJECT_ALLOCATION_FAILURE" in failure.reason
    interpreter.invoke()
