"""Custom operators: named where nobody knows them, run where somebody registered them."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter, InterpreterWithCustomOps
from runtime.errors import UnsupportedOperatorError
from runtime.model.schema import BuiltinOperator
from runtime.ops.support import registry
from runtime.ops.support.context import Kernel, OpContext
from runtime.ops.support.registry import CustomRegistrar, custom_operator
from tests.needs import REPOSITORY
from tests.runtime.models import Builder

EXAMPLE = REPOSITORY / "examples/custom_operator/clip_by_norm.py"


def model(name: str, version: int = 1) -> bytes:
    b = Builder()
    x, y = b.input(np.float32, (3,)), b.tensor(np.float32, (3,))
    b.operator(BuiltinOperator.CUSTOM, [x], [y], version=version, custom_code=name)
    return b.write([y])


def doubling(op: OpContext) -> Kernel:
    x, y = op.read(), op.write()
    return lambda: np.copyto(y, 2 * x)


def register_twice(register: CustomRegistrar) -> None:
    register("TestTwice", infer=lambda op: (op.input().shape,))(doubling)


def register_other(register: CustomRegistrar) -> None:
    register("TestOther", infer=lambda op: (op.input().shape,))(doubling)


def run(interpreter: Interpreter) -> list[float]:
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, np.array([1, 2, 3], np.float32))
    interpreter.invoke()
    return interpreter.get_tensor(1).tolist()


def test_the_example_of_a_custom_operator_runs():
    result = subprocess.run(
        [sys.executable, EXAMPLE], check=True, cwd=REPOSITORY, capture_output=True, text=True
    )
    assert result.stdout.splitlines()[0].startswith("[3, 0, 4, 0] -> [0.60")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Unheard", "custom operator Unheard; runtime.custom_operator registers"),
        ("FlexErf", "needs TensorFlow"),
    ],
)
def test_an_unknown_custom_operator_is_named(name, text):
    with pytest.raises(UnsupportedOperatorError, match=text) as caught:
        Interpreter(model_content=model(name, version=2))
    assert (caught.value.operator_name, caught.value.version, caught.value.index) == (name, 2, 0)


def test_an_interpreter_takes_registerers():
    made = [InterpreterWithCustomOps([register_twice], model_content=model("TestTwice")) for _ in range(2)]
    assert [run(i) for i in made] == [[2, 4, 6]] * 2
    named = InterpreterWithCustomOps([f"{__name__}:register_other"], model_content=model("TestOther"))
    assert run(named) == [2, 4, 6]


def test_an_unknown_registerer_and_a_name_taken_twice_are_refused():
    with pytest.raises(ValueError, match="Looking up symbol 'nobody' failed"):
        InterpreterWithCustomOps(["nobody"], model_content=model("TestTwice"))
    custom_operator("TestTaken", infer=lambda op: (op.input().shape,))(doubling)
    with pytest.raises(ValueError, match=r"custom operator TestTaken is registered by .*test_custom_op"):
        custom_operator("TestTaken", infer=lambda op: (op.input().shape,))(doubling)


def test_an_installed_package_registers_by_entry_point(monkeypatch):
    def found(*, group: str, name: str) -> list[EntryPoint]:
        known = (group, name) == ("delegate_farm.operators", "TestInstalled")
        return [EntryPoint(name, f"{__name__}:Installed", group)] if known else []

    monkeypatch.setattr(registry, "entry_points", found)
    assert run(Interpreter(model_content=model("TestInstalled"))) == [2, 4, 6]


def __getattr__(name: str) -> object:
    """Register `Installed` when it is loaded, as importing a package's module does."""
    if name != "Installed":
        raise AttributeError(name)
    return custom_operator("TestInstalled", infer=lambda op: (op.input().shape,))(doubling)


def test_versions_beyond_the_kernel_s_are_refused():
    register = custom_operator("TestVersioned", infer=lambda op: (op.input().shape,), max_version=2)
    register(doubling)
    assert run(Interpreter(model_content=model("TestVersioned", version=2))) == [2, 4, 6]
    with pytest.raises(UnsupportedOperatorError, match="versions up to 2"):
        Interpreter(model_content=model("TestVersioned", version=3))
