"""Groups of operators that cost more than they save stay on the CPU, with the reason; no whole model does."""

import re

import numpy as np
import pytest

from delegate_farm import load_delegate
from runtime.api.interpreter import Interpreter
from runtime.errors import DelegateError
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Builder
from tests.runtime.test_partition import NumpyDelegate, chain, report, run


class Priced(NumpyDelegate):
    """Saves so much with each operator, and spends so much on each run."""

    def __init__(self, *names, saves=5_000, run=100_000, limit=1):
        super().__init__(*names, limit=limit)
        self.saves, self.run = saves, run
        self.cost_model = self

    def saved_ns(self, graph, operator):
        return 1e6 if operator.name == "EXP" else self.saves

    def entry_ns(self, graph, inputs, outputs):
        return self.run


def left(interpreter):
    return {f.index: f.reason for f in report(interpreter).fallbacks if f.reason.startswith("supported")}


def test_a_partition_that_costs_more_than_it_saves_stays_on_the_cpu():
    interpreter, found = run(chain("NEG", "ABS", "RELU"), Priced("NEG", "ABS"))
    why = (
        "supported, but the model would take an estimated 90 µs longer with its group of 2 operators on "
        "numpy (cost_aware_partitioning)"
    )
    assert left(interpreter) == {0: why, 1: why}
    assert report(interpreter).status == "none"
    np.testing.assert_array_equal(found[0], run(chain("NEG", "ABS", "RELU"))[1][0])


@pytest.mark.parametrize(("saves", "taken"), [(60_000, 2), (46_000, 2), (44_000, 0)])
def test_one_that_pays_or_nearly_pays_is_taken(saves, taken):
    interpreter, _ = run(chain("NEG", "ABS", "RELU"), Priced("NEG", "ABS", saves=saves))
    assert report(interpreter).delegated_ops == taken


def test_a_model_that_is_taken_whole_is_never_divided():
    interpreter, _ = run(chain("NEG", "ABS"), Priced("NEG", "ABS", saves=-1_000_000))
    assert report(interpreter).status == "full"


def test_of_several_partitions_only_those_stay_that_pay():
    names = ("EXP", "RELU", "NEG", "RELU", "EXP")
    interpreter, found = run(chain(*names), Priced("NEG", "EXP", limit=10))
    assert set(left(interpreter)) == {2}
    assert report(interpreter).partitions == 2
    np.testing.assert_allclose(found[0], run(chain(*names))[1][0], rtol=1e-6)


def cut_up() -> bytes:
    """Before any of a long chain needs it, a small operator stands between two that stay on the CPU.

    Where it is delegated, LiteRT's order begins with it and with the chain's independent half.
    """
    b = Builder()
    x, shape = b.input(np.float32, (2, 3)), (2, 3)
    small, masked, y = b.tensor(np.float32, shape), b.tensor(np.float32, shape), b.tensor(np.float32, shape)
    b.operator(Op.NEG, [x], [small])
    b.operator(Op.RELU, [small], [masked])
    b.operator(Op.EXP, [x], [y])
    for position in range(6):
        made = b.tensor(np.float32, shape)
        if position == 3:
            b.operator(Op.MUL, [y, masked], [made])
        else:
            b.operator(Op.ABS, [y], [made])
        y = made
    return b.write([y])


def test_a_small_group_that_cuts_a_large_partition_up_stays_on_the_cpu():
    names = ("NEG", "ABS", "EXP", "MUL")
    assert report(run(cut_up(), NumpyDelegate(*names))[0]).delegated_ops == 5
    interpreter, found = run(cut_up(), Priced(*names, saves=8_000))
    assert report(interpreter).delegated_ops == 7
    assert set(left(interpreter)) == {0}
    assert "longer with it on numpy" in left(interpreter)[0]
    np.testing.assert_allclose(found[0], run(cut_up())[1][0], rtol=1e-6)


def test_a_group_that_costs_little_stays_in_a_partition_that_runs_anyway():
    b = Builder()
    x, shape = b.input(np.float32, (2, 3)), (2, 3)
    outputs = [b.tensor(np.float32, shape) for _ in range(3)]
    for opcode, made in zip((Op.EXP, Op.NEG, Op.RELU), outputs, strict=True):
        b.operator(opcode, [x], [made])
    interpreter, _ = run(b.write(outputs), Priced("EXP", "NEG", saves=-5_000))
    assert report(interpreter).delegated_ops == 2


def few_on_the_gpu() -> bytes:
    """Build a small SOFTMAX in front of an operator without kernels."""
    b = Builder()
    x, shape = b.input(np.float32, (2, 8)), (2, 8)
    soft, kept = b.tensor(np.float32, shape), b.tensor(np.float32, shape)
    b.operator(Op.SOFTMAX, [x], [soft], {"beta": 1.0})
    b.operator(Op.SEGMENT_SUM, [soft, b.constant(np.int32([0, 1]))], [kept])
    return b.write([kept])


@pytest.mark.parametrize("aware", [True, False])
def test_the_gpu_delegate_leaves_a_softmax_of_16_elements_to_the_cpu(aware):
    options = {"cache_dir": "", "tuning": "none", "cost_aware_partitioning": aware}
    delegate = load_delegate("gpu", options)
    interpreter = Interpreter(model_content=few_on_the_gpu(), experimental_delegates=[delegate])
    reasons = {f.op: f.reason for f in interpreter.delegation.fallbacks}
    assert ("SOFTMAX" in reasons) == aware
    if aware:
        assert re.fullmatch(
            r"supported, but the model would take an estimated \d+ µs longer with it on gpu "
            r"\(cost_aware_partitioning\)",
            reasons["SOFTMAX"],
        )


def test_where_full_delegation_is_required_the_error_names_only_what_has_no_kernel():
    options = {"cache_dir": "", "tuning": "none", "require_full_delegation": True}
    with pytest.raises(DelegateError, match="Disallowed CPU fallback") as raised:
        Interpreter(model_content=few_on_the_gpu(), experimental_delegates=[load_delegate("gpu", options)])
    assert "SEGMENT_SUM: no OpenCL kernel for this operator" in str(raised.value)
    assert "SOFTMAX" not in str(raised.value)
