"""Partitions, the report, and running them: with a small delegate that really computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.delegates.base import GraphFacts, Partition, PartitionDelegate, Unsupported
from runtime.delegates.epochs import Grouping, epochs
from runtime.delegates.partition import DelegationReport, FailedPartition
from runtime.errors import DelegateError, UnsupportedOperatorError
from runtime.model.graph import Operator
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator
from tests.runtime.models import Builder

FUNCTIONS = {
    "RELU": lambda x: np.maximum(x, 0),
    "EXP": np.exp,
    "NEG": np.negative,
    "ABS": np.abs,
    "Double": lambda x: x * 2,
    "ADD": np.add,
    "MUL": np.multiply,
}


class Compiled:
    """Evaluates a partition operator by operator, on what the partition says and nothing else."""

    def __init__(self, partition: Partition, owner: NumpyDelegate) -> None:
        self._partition = partition
        self._owner = owner

    def invoke(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        self._owner.invocations += 1
        values = dict(self._partition.constants)
        values.update(zip(self._partition.inputs, inputs, strict=True))
        for operator in self._partition.operators:
            values[operator.outputs[0]] = FUNCTIONS[operator.name](*(values[i] for i in operator.inputs))
        for index, out in zip(self._partition.outputs, outputs, strict=True):
            assert out.shape == self._partition.shapes[index]
            assert out.dtype == self._partition.dtypes[index]
            np.copyto(out, values[index])

    def close(self) -> None:
        self._owner.closed += 1


class NumpyDelegate:
    """Takes the operators it is told to take."""

    def __init__(self, *names: str, name: str = "numpy", limit: int = 1, fails: bool = False) -> None:
        self.name = name
        self.max_delegated_partitions = limit
        self.fails = fails
        self.cause: Exception | None = None
        self.partitions: list[Partition] = []
        self.invocations = self.closed = 0
        self._names = names

    def supports(self, graph: GraphFacts, operator: Operator) -> Unsupported | None:
        return (
            None if operator.name in self._names else Unsupported(f"{operator.name} is not for {self.name}")
        )

    def compile(self, partition: Partition) -> Compiled:
        if self.fails:
            raise DelegateError("the device is on fire\nand so is the house") from self.cause
        self.partitions.append(partition)
        return Compiled(partition, self)

    def describe(self) -> Mapping[str, str]:
        return {}


def chain(*names: str) -> bytes:
    """x -> names[0] -> names[1] -> ..."""
    b = Builder()
    value = b.input(np.float32, (2, 3))
    for name in names:
        made = b.tensor(np.float32, (2, 3))
        custom = name if name == "Double" else None
        opcode = BuiltinOperator.CUSTOM if custom else BuiltinOperator[name]
        b.operator(opcode, [value], [made], custom_code=custom)
        value = made
    return b.write([value])


def run(model: bytes, *delegates: PartitionDelegate, **options) -> tuple[Interpreter, list[np.ndarray]]:
    interpreter = Interpreter(model_content=model, experimental_delegates=list(delegates), **options)
    interpreter.allocate_tensors()
    value = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    for details in interpreter.get_input_details():
        interpreter.set_tensor(details["index"], value)
    interpreter.invoke()
    return interpreter, [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


def report(interpreter: Interpreter) -> DelegationReport:
    assert interpreter.delegation is not None
    return interpreter.delegation


def test_the_test_delegate_is_one():
    assert isinstance(NumpyDelegate(), PartitionDelegate)


def test_all_operators_are_delegated_as_one_partition():
    delegate = NumpyDelegate("NEG", "ABS", "EXP")
    model = chain("NEG", "ABS", "EXP")
    interpreter, found = run(model, delegate)
    assert report(interpreter) == DelegationReport("full", 3, 3, 1, ())
    assert (len(delegate.partitions), delegate.invocations) == (1, 1)
    assert (delegate.partitions[0].inputs, delegate.partitions[0].outputs) == ((0,), (3,))
    np.testing.assert_allclose(found[0], run(model)[1][0], rtol=1e-6)


def test_without_a_delegate_there_is_no_report():
    assert run(chain("NEG"))[0].delegation is None


def test_the_largest_partition_is_kept_and_the_rest_falls_back():
    model = chain("NEG", "RELU", "ABS", "EXP", "RELU", "NEG")
    delegate = NumpyDelegate("NEG", "ABS", "EXP")
    interpreter, found = run(model, delegate)
    found_report = report(interpreter)
    assert (found_report.status, found_report.partitions) == ("partial", 1)
    assert (found_report.delegated_ops, found_report.total_ops) == (2, 6)
    assert [(f.index, f.op) for f in found_report.fallbacks] == [
        (0, "NEG"), (1, "RELU"), (4, "RELU"), (5, "NEG"),
    ]  # fmt: skip
    assert found_report.fallbacks[1].reason == "RELU is not for numpy"
    assert "smaller partition than the 1 that numpy may take" in found_report.fallbacks[0].reason
    assert [o.name for o in delegate.partitions[0].operators] == ["ABS", "EXP"]
    np.testing.assert_allclose(found[0], run(model)[1][0], rtol=1e-6)


def test_more_partitions_where_the_delegate_allows_them():
    model = chain("NEG", "RELU", "ABS", "EXP", "RELU", "NEG")
    delegate = NumpyDelegate("NEG", "ABS", "EXP", limit=10)
    interpreter, found = run(model, delegate)
    assert report(interpreter).partitions == len(delegate.partitions) == 3
    assert report(interpreter).delegated_ops == 4
    np.testing.assert_allclose(found[0], run(model)[1][0], rtol=1e-6)


def test_a_partition_smaller_than_the_delegate_wants_stays_on_the_cpu():
    model = chain("NEG", "RELU", "ABS", "EXP", "RELU", "NEG")
    delegate = NumpyDelegate("NEG", "ABS", "EXP", limit=10)
    delegate.min_nodes_per_partition = 2
    interpreter, found = run(model, delegate)
    assert [o.name for part in delegate.partitions for o in part.operators] == ["ABS", "EXP"]
    left = {f.index: f.reason for f in report(interpreter).fallbacks if f.op == "NEG"}
    why = "supported, but in a partition of 1; numpy takes none of fewer than 2 operators"
    assert left == {0: why, 5: why}
    np.testing.assert_allclose(found[0], run(model)[1][0], rtol=1e-6)


def test_no_operator_is_delegated():
    interpreter, _ = run(chain("RELU", "RELU"), NumpyDelegate("EXP"))
    assert report(interpreter).status == "none"
    assert (report(interpreter).delegated_ops, report(interpreter).partitions) == (0, 0)


def test_two_delegates_take_parts_of_one_model():
    model = chain("NEG", "ABS", "RELU", "EXP", "EXP")
    first, second = NumpyDelegate("NEG", "ABS", name="first"), NumpyDelegate("ABS", "EXP", name="second")
    interpreter, found = run(model, first, second)
    assert report(interpreter).delegated_ops == 4
    assert [len(d.partitions[0].operators) for d in (first, second)] == [2, 2]
    (fallback,) = report(interpreter).fallbacks
    assert fallback.reason == "RELU is not for first; RELU is not for second"
    np.testing.assert_allclose(found[0], run(model)[1][0], rtol=1e-6)


def diamond() -> bytes:
    """Two branches of one input that meet; the left one has an operator that is not delegated."""
    b = Builder()
    x = b.input(np.float32, (2, 3))
    left1, left2, right1, right2, out = (b.tensor(np.float32, (2, 3)) for _ in range(5))
    b.operator(BuiltinOperator.NEG, [x], [left1])
    b.operator(BuiltinOperator.RELU, [left1], [left2])
    b.operator(BuiltinOperator.ABS, [x], [right1])
    b.operator(BuiltinOperator.EXP, [right1], [right2])
    b.operator(BuiltinOperator.ADD, [left2, right2], [out])
    return b.write([out, left1])


def test_an_epoch_absorbs_independent_operators_across_the_order():
    delegate = NumpyDelegate("NEG", "ABS", "EXP", "ADD", limit=10)
    interpreter, found = run(diamond(), delegate)
    names = [[o.name for o in p.operators] for p in delegate.partitions]
    assert names == [["NEG", "ABS", "EXP"], ["ADD"]]
    assert delegate.partitions[0].outputs == (1, 4)
    assert report(interpreter).status == "partial"
    for ours, plain in zip(found, run(diamond())[1], strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-6)


@pytest.mark.parametrize(
    ("grouping", "expected"),
    [
        (Grouping(), [[0, 2, 3], [1], [4]]),
        (Grouping(cluster=False), [[0], [1], [2, 3, 4]]),
        (Grouping(fuse=False), [[0], [1], [2], [3], [4]]),
    ],
    ids=["default", "no_clustering", "no_fusion"],
)
def test_grouping_switches(grouping, expected):
    subgraph = read_model(diamond()).subgraphs[0]
    kinds = dict.fromkeys((0, 2, 3, 4), 0)
    groups = epochs(subgraph, kinds, frozenset(), grouping)
    assert [[o.index for o in group] for group in groups] == expected


def test_the_interpreter_passes_the_switches_on():
    delegate = NumpyDelegate("NEG", "ABS", "EXP", "ADD", limit=10)
    run(diamond(), delegate, experimental_disable_delegate_node_fusion=True)
    assert [len(p.operators) for p in delegate.partitions] == [1, 1, 1, 1]


def half_precision() -> bytes:
    """Build a float16 constant widened by DEQUANTIZE, as float16 models have."""
    b = Builder()
    x = b.input(np.float32, (2, 3))
    half = b.constant(np.array([1, 2, 3], np.float16))
    wide, scaled, out = b.tensor(np.float32, (3,)), b.tensor(np.float32, (2, 3)), b.tensor(np.float32, (2, 3))
    b.operator(BuiltinOperator.DEQUANTIZE, [half], [wide], version=3)
    b.operator(BuiltinOperator.MUL, [x, wide], [scaled])
    b.operator(BuiltinOperator.NEG, [scaled], [out])
    return b.write([out])


def test_a_folded_constant_counts_as_delegated():
    delegate = NumpyDelegate("MUL", "NEG")
    interpreter, found = run(half_precision(), delegate)
    assert report(interpreter) == DelegationReport("full", 3, 3, 1, ())
    (constant,) = (a for a in delegate.partitions[0].constants.values() if a.dtype == np.float32)
    assert constant.tolist() == [1, 2, 3]
    assert [o.name for o in delegate.partitions[0].operators] == ["MUL", "NEG"]
    np.testing.assert_allclose(found[0], run(half_precision())[1][0], rtol=1e-6)


def test_a_folded_constant_of_the_cpu_does_not():
    interpreter, _ = run(half_precision(), NumpyDelegate("NEG"))
    assert [(f.index, f.op) for f in report(interpreter).fallbacks] == [(0, "DEQUANTIZE"), (1, "MUL")]


def test_an_operator_the_cpu_lacks_may_be_delegated():
    interpreter, found = run(chain("NEG", "Double", "ABS"), NumpyDelegate("NEG", "Double"))
    assert report(interpreter).delegated_ops == 2
    np.testing.assert_allclose(found[0], 2 * np.abs(np.linspace(-1, 1, 6)).reshape(2, 3), rtol=1e-6)


def test_an_operator_that_nobody_has_is_named_with_the_report():
    with pytest.raises(UnsupportedOperatorError, match="operator 1 Double version 1") as caught:
        Interpreter(model_content=chain("NEG", "Double", "ABS", "EXP"), experimental_delegates=[
            NumpyDelegate("NEG", "ABS", "EXP")
        ])  # fmt: skip
    error = caught.value
    assert (error.operator_name, error.index) == ("Double", 1)
    assert error.delegation is not None
    assert (error.delegation.status, error.delegation.delegated_ops) == ("partial", 2)
    assert [(f.op, f.reason) for f in error.delegation.fallbacks if f.op == "Double"] == [
        ("Double", "Double is not for numpy")
    ]


def test_a_type_that_the_cpu_lacks_is_reported_when_allocating():
    b = Builder()
    x = b.input(np.complex64, (2, 3))
    y = b.tensor(np.complex64, (2, 3))
    b.operator(BuiltinOperator.ADD, [x, x], [y])
    interpreter = Interpreter(model_content=b.write([y]), experimental_delegates=[NumpyDelegate("EXP")])
    with pytest.raises(UnsupportedOperatorError, match="type COMPLEX64") as caught:
        interpreter.allocate_tensors()
    assert caught.value.delegation is not None
    assert caught.value.delegation.status == "none"


def test_a_failing_delegate_leaves_the_last_plan_in_place():
    delegate = NumpyDelegate("NEG", "ABS")
    delegate.require_full_delegation = True  # type: ignore[attr-defined]
    interpreter, first = run(chain("NEG", "ABS"), delegate)
    delegate.fails = True
    interpreter.resize_tensor_input(0, (4, 3))
    with pytest.raises(DelegateError, match="on fire"):
        interpreter.allocate_tensors()
    interpreter.resize_tensor_input(0, (2, 3))
    interpreter.allocate_tensors()
    interpreter.invoke()
    np.testing.assert_array_equal(interpreter.get_tensor(2), first[0])
    assert delegate.closed == 0
    interpreter.close()
    assert delegate.closed == 1


def test_a_partition_that_cannot_be_compiled_runs_on_the_cpu_with_the_reason():
    good, bad = NumpyDelegate("NEG", name="good"), NumpyDelegate("EXP", name="bad", fails=True)
    interpreter, outputs = run(chain("NEG", "EXP"), good, bad)
    assert [(f.op, f.reason) for f in report(interpreter).fallbacks] == [
        ("EXP", "EXP is not for good; its partition could not be compiled: the device is on fire")
    ]
    log = "the device is on fire\nand so is the house"
    assert report(interpreter).failures == (FailedPartition("bad", (1,), "the device is on fire", log),)
    assert (report(interpreter).status, report(interpreter).partitions) == ("partial", 1)
    np.testing.assert_array_equal(outputs[0], np.exp(-interpreter.get_tensor(0)))
    # The first plan was dropped with what the other delegate had compiled for it.
    assert (good.closed, len(good.partitions)) == (1, 2)


def test_a_partition_that_could_not_be_compiled_is_tried_again_with_other_shapes():
    delegate = NumpyDelegate("NEG", fails=True)
    interpreter, _ = run(chain("NEG"), delegate)
    assert report(interpreter).status == "none"
    delegate.fails = False
    interpreter.resize_tensor_input(0, (5, 3))
    interpreter.allocate_tensors()
    assert report(interpreter).status == "full"


def test_a_delegate_that_lacks_a_library_is_an_error():
    delegate = NumpyDelegate("NEG", fails=True)
    delegate.cause = ImportError("no module named 'driver'")
    with pytest.raises(DelegateError, match="on fire"):
        run(chain("NEG"), delegate)


def test_a_resized_model_is_compiled_anew():
    delegate = NumpyDelegate("NEG", "ABS")
    interpreter, _ = run(chain("NEG", "ABS"), delegate)
    interpreter.resize_tensor_input(0, (5, 3))
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, -np.ones((5, 3), np.float32))
    interpreter.invoke()
    np.testing.assert_array_equal(interpreter.get_tensor(2), np.ones((5, 3)))
    assert [p.shapes[0] for p in delegate.partitions] == [(2, 3), (5, 3)]
    assert delegate.closed == 1


def test_full_delegation_can_be_required():
    delegate = NumpyDelegate("NEG")
    delegate.require_full_delegation = True  # type: ignore[attr-defined]
    run(chain("NEG"), delegate)
    with pytest.raises(DelegateError, match=r"Disallowed CPU fallback detected\.\n.*\nRELU: RELU is not"):
        run(chain("NEG", "RELU"), delegate)


def test_the_text_has_the_layout_of_litert():
    interpreter, _ = run(chain("NEG", "RELU", "RELU"), NumpyDelegate("NEG"))
    assert str(report(interpreter)).splitlines() == [
        "Following operations are not supported by the delegate:",
        "RELU: RELU is not for numpy",
        "",
        "1 operations will run on the delegate, and the remaining 2 operations will run on the CPU.",
    ]
    gpu = NumpyDelegate("NEG")
    gpu.title = "GPU"
    assert str(report(run(chain("NEG", "RELU"), gpu)[0])).splitlines() == [
        "Following operations are not supported by GPU delegate:",
        "RELU: RELU is not for numpy",
        "",
        "1 operations will run on the GPU, and the remaining 1 operations will run on the CPU.",
    ]
    none, _ = run(chain("RELU"), NumpyDelegate("NEG"))
    assert str(report(none)).endswith(
        "No operations will run on the delegate, and all 1 operations will run on the CPU."
    )
    full, _ = run(chain("NEG"), NumpyDelegate("NEG"))
    assert str(report(full)) == "All 1 operations will run on the delegate."


def test_the_log_has_the_lines_of_litert(caplog):
    caplog.set_level("INFO", logger="runtime")
    interpreter, _ = run(chain("NEG", "RELU", "ABS", "NEG"), NumpyDelegate("NEG", "ABS"))
    replaced = "Replacing 2 out of 4 node(s) with delegate (numpy) node, yielding 2 partitions for subgraph 0"
    levels = [(record.levelname, record.getMessage().partition(" (main)")[0]) for record in caplog.records]
    assert levels == [("INFO", replaced), ("WARNING", str(report(interpreter)))]
    caplog.clear()
    for rows in (5, 6):
        interpreter.resize_tensor_input(0, (rows, 3))
        interpreter.allocate_tensors()
    assert {record.levelname for record in caplog.records} == {"INFO"}, "one text is one warning"


def test_a_model_that_is_taken_whole_gives_no_warning(caplog):
    run(chain("NEG", "ABS"), NumpyDelegate("NEG", "ABS"))
    assert not caplog.records


def test_a_failed_partition_is_logged_as_litert_does(caplog):
    interpreter, _ = run(chain("NEG"), NumpyDelegate("NEG", fails=True))
    failed, restored, fallback = (record.getMessage() for record in caplog.records)
    said = "the device is on fire\nand so is the house"
    assert failed.endswith(f"of 1 operators could not be compiled and runs on the CPU: {said}")
    assert restored == "Restored original execution plan after delegate application failure."
    assert fallback == str(report(interpreter))
