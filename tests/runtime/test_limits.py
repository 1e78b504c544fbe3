"""Files ask for more than there is: memory that is missing, tensors that a kernel did not foresee."""

from __future__ import annotations

import resource
import subprocess
import sys

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import InvocationError, ModelError, UnsupportedOperatorError
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.support.context import Kernel, OpContext
from runtime.ops.support.registry import custom_operator
from runtime.plan import budget, program
from runtime.plan.budget import MemoryBudget, machine_bytes
from tests.needs import REPOSITORY
from tests.runtime.models import Builder, per_tensor

Op = BuiltinOperator
MIB = 1 << 20


def growing(mib: int, steps: int = 1) -> bytes:
    """Build a chain of NEG on so many MiB, which two arrays hold."""
    b = Builder()
    value = b.input(np.float32, (mib * MIB // 4,))
    for _ in range(steps):
        following = b.tensor(np.float32, (mib * MIB // 4,))
        b.operator(Op.NEG, [value], [following])
        value = following
    return b.write([value])


def test_a_plan_beyond_the_machine_is_refused_before_anything_is_allocated(monkeypatch):
    monkeypatch.setattr(program, "MemoryBudget", lambda: MemoryBudget(8 * MIB))
    fitting = Interpreter(model_content=growing(4))
    fitting.allocate_tensors()
    large = Interpreter(model_content=growing(5))
    with pytest.raises(ModelError, match=r"need 10 MiB at once; this machine has 8 MiB"):
        large.allocate_tensors()
    large.resize_tensor_input(0, [16])
    large.allocate_tensors()
    large.invoke()


def test_what_is_given_back_can_be_taken_again():
    found = MemoryBudget(100)
    for _ in range(3):
        found.reserve(60)
        with pytest.raises(ModelError):
            found.reserve(41)
        found.release(60)
    found.reserve(100)


def test_plans_of_one_interpreter_do_not_add_up(monkeypatch):
    monkeypatch.setattr(program, "MemoryBudget", lambda: MemoryBudget(20 * MIB))
    interpreter = Interpreter(model_content=growing(1))
    for size in range(1, 40):
        interpreter.resize_tensor_input(0, [size * 1000])
        interpreter.allocate_tensors()
    assert interpreter._program._budget._reserved < 1 * MIB


def test_the_machine_s_memory_is_that_of_its_container(tmp_path, monkeypatch):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(budget, "_CGROUP_LIMITS", (str(tmp_path / "absent"), str(limit)))
    machine_bytes.cache_clear()
    try:
        limit.write_text("max\n", encoding="ascii")
        whole = machine_bytes()
        machine_bytes.cache_clear()
        limit.write_text(f"{64 * MIB}\n", encoding="ascii")
        assert machine_bytes() == 64 * MIB < whole
    finally:
        machine_bytes.cache_clear()


STARVED = """
import resource, sys
from runtime.api.interpreter import Interpreter
from tests.runtime.test_limits import MIB, growing
data = growing(300, 2)
size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize() + 400 * MIB
resource.setrlimit(resource.RLIMIT_AS, (size, size))
try:
    Interpreter(model_content=data).allocate_tensors()
except ValueError as error:
    print(type(error).__name__, error)
"""


def test_a_process_with_little_memory_gets_a_clean_error():
    ran = subprocess.run(
        [sys.executable, "-c", STARVED], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert ran.stdout.startswith("OutOfMemoryError the model needs more memory than is available")
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY


def failing(name: str, where: str) -> bytes:
    """Build a custom operator that raises KeyError while it infers, prepares or runs."""

    def infer(op: OpContext) -> tuple[tuple[int, ...], ...]:
        return ({}["infer"] if where == "infer" else op.input().shape,)

    def prepare(_op: OpContext) -> Kernel:
        return {}["prepare"] if where == "prepare" else lambda: {}["run"]

    custom_operator(name, infer=infer)(prepare)
    b = Builder()
    x, y = b.input(np.float32, (3,)), b.tensor(np.float32, (3,))
    b.operator(Op.CUSTOM, [x], [y], custom_code=name)
    return b.write([y])


@pytest.mark.parametrize("where", ["infer", "prepare"])
def test_what_an_operator_raises_while_planning_is_named(where):
    name = f"TestFails{where}"
    interpreter = Interpreter(model_content=failing(name, where))
    with pytest.raises(UnsupportedOperatorError, match=f"operator 0 {name} version 1: .*KeyError") as caught:
        interpreter.allocate_tensors()
    assert isinstance(caught.value.__cause__, KeyError)


def test_what_an_operator_raises_in_a_run_is_named_and_the_interpreter_goes_on():
    interpreter = Interpreter(model_content=failing("TestFailsRun", "run"))
    interpreter.allocate_tensors()
    for _ in range(2):
        with pytest.raises(InvocationError, match=r"operator 0 TestFailsRun version 1: .*KeyError"):
            interpreter.invoke()


@pytest.mark.parametrize(
    "kind", [TensorType.FLOAT16, TensorType.INT32, TensorType.COMPLEX64, TensorType.STRING]
)
def test_an_output_of_a_type_that_the_operator_does_not_give_is_refused(kind):
    b = Builder()
    x = b.input(np.float32, (1, 5, 5, 2))
    w = b.constant(np.ones((2, 3, 3, 2), np.float32))
    y = b.tensor(np.float32, (1, 5, 5, 2), type=kind)
    b.operator(Op.CONV_2D, [x, w, -1], [y], {"stride_w": 1, "stride_h": 1})
    with pytest.raises(UnsupportedOperatorError, match=f"output 0 has type {kind.name}"):
        Interpreter(model_content=b.write([y])).allocate_tensors()


def test_a_shape_of_too_many_dimensions_is_an_error_of_the_run():
    b = Builder()
    x, shape, y = b.input(np.float32, (1,)), b.input(np.int32, (100,)), b.tensor(np.float32)
    b.operator(Op.RESHAPE, [x, shape], [y])
    interpreter = Interpreter(model_content=b.write([y]))
    interpreter.allocate_tensors()
    interpreter.set_tensor(shape, np.ones(100, np.int32))
    with pytest.raises(InvocationError, match="operator 0 RESHAPE: an output of rank 100, above 64"):
        interpreter.invoke()


def test_a_scale_of_zero_is_refused():
    b = Builder()
    x, y = b.input(np.int8, (4,), per_tensor(0.0)), b.tensor(np.int8, (4,), per_tensor(0.5))
    b.operator(Op.LOGISTIC, [x], [y], version=2)
    with pytest.raises(UnsupportedOperatorError, match="'t0' has a scale of 0"):
        Interpreter(model_content=b.write([y])).allocate_tensors()


def test_a_file_with_an_unknown_operator_can_be_looked_into():
    from runtime.model.reader import read_model
    from runtime.tools.model_info import memory_plan, model_facts

    b = Builder()
    x, y, z = b.input(np.float32, (3,)), b.tensor(np.float32, (3,)), b.tensor(np.float32, (3,))
    b.operator(Op.CUSTOM, [x], [y], custom_code="FlexErf")
    b.operator(Op.RELU, [y], [z])
    data = b.write([z])
    model = read_model(data)
    assert {o.name: o.count for o in model_facts(model, len(data)).operators} == {"FlexErf": 1, "RELU": 1}
    assert memory_plan(model.subgraphs[0]).arena_bytes == 3 * 64
