"""`Interpreter.profile` and `farm model profile`: rows, sums and what they are not."""

from __future__ import annotations

import json
import re
from timeit import timeit

import numpy as np
import pytest
from typer.testing import CliRunner

from runtime.api.compiled_model import CompiledModel, HardwareAccelerator, Options
from runtime.api.interpreter import Interpreter, load_delegate
from runtime.api.tensor_buffer import TensorBuffer
from runtime.delegates.abilities import KernelTime
from runtime.delegates.base import Unsupported
from runtime.measure.profile import processor_peaks
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator as Op
from runtime.plan.blas import one_blas_thread
from runtime.plan.profile import StepTime, model_profile
from runtime.tools.model_plan import model_plan, planner_of
from runtime.tools.verbs import model_verbs
from tests.needs import REPOSITORY
from tests.runtime.models import Builder
from tests.runtime.tools.plan_models import small_network, two_partitions

OPTIONS = {
    "max_delegated_partitions": 2, "cost_aware_partitioning": False, "tuning": "none", "persistent": "off",
}  # fmt: skip
GIVEN = [word for name, value in OPTIONS.items() for word in ("--option", f"{name}={value}")]


@pytest.fixture(scope="module")
def profiled():
    """Return an interpreter of two partitions with an operator between, its profile, and the plan."""
    data = two_partitions()
    interpreter = Interpreter(model_content=data, experimental_delegates=[load_delegate("gpu", OPTIONS)])
    interpreter.allocate_tensors()
    (detail,) = interpreter.get_input_details()
    values = np.random.default_rng(3).normal(size=detail["shape"]).astype(np.float32)
    interpreter.set_tensor(detail["index"], values)
    yield interpreter, interpreter.profile(3), model_plan(read_model(data), planner_of("gpu", OPTIONS))
    interpreter.close()


def test_the_profile_has_a_row_for_each_planned_kernel_and_for_the_operator_on_the_cpu(profiled):
    _, profile, plan = profiled
    first, last = plan.partitions
    kernels = [[(one.function, one.operators) for one in part.launches] for part in (first, last)]
    expected = [*kernels[0], ("REVERSE_SEQUENCE", (2,)), *kernels[1]]
    assert [(row.name, row.operators) for row in profile.rows] == expected
    assert [row.place for row in profile.rows].count("cpu") == 1
    assert [row.step for row in profile.rows] == sorted(row.step for row in profile.rows)
    assert all(row.time_ns > 0 for row in profile.rows)
    counted = {row.name: (row.flops, row.bytes) for row in profile.rows if row.place == "kernel"}
    planned = {one.function: (one.flops, one.bytes) for part in plan.partitions for one in part.launches}
    assert counted == planned


def test_times_of_operators_and_types_add_up_to_the_rows(profiled):
    _, profile, _ = profiled
    assert profile.sum_ns == pytest.approx(sum(row.time_ns for row in profile.rows))
    assert sum(row.share for row in profile.rows) == pytest.approx(1)
    assert sum(one.time_ns for one in profile.operators) == pytest.approx(profile.sum_ns)
    assert sum(one.time_ns for one in profile.types) == pytest.approx(profile.sum_ns)
    fused = {one.name for one in profile.operators if one.is_divided}
    assert fused == {"CONV_2D", "RELU"}
    assert "A run takes " in profile.caution


def test_a_profile_leaves_the_outputs_of_a_run(profiled):
    interpreter, *_ = profiled
    (output,) = interpreter.get_output_details()
    told = interpreter.get_tensor(output["index"])
    interpreter.invoke()
    np.testing.assert_array_equal(told, interpreter.get_tensor(output["index"]))


def test_the_time_of_a_kernel_is_divided_by_the_work_of_its_operators():
    """A convolution of 27 products an element does 55 times the work of the ADD that it is fused with."""
    graph = read_model(small_network()).subgraphs[0]
    kernel = KernelTime("f", "", (0, 1), 5600, 1, 1)
    shapes = {tensor.index: tensor.shape for tensor in graph.tensors}
    found = model_profile(
        graph, shapes, [[StepTime((0, 1), on_cpu=False, time_ns=9, kernels=(kernel,))]], [7]
    )
    assert [round(one.time_ns) for one in found.operators] == [5500, 100]
    assert (found.sum_ns, found.run_ns) == (5600, 7)


def test_medians_hold_over_the_rounds():
    graph = read_model(two_partitions()).subgraphs[0]
    shapes = {tensor.index: tensor.shape for tensor in graph.tensors}
    runs = [[StepTime((i,), on_cpu=True, time_ns=time)] for time, i in ((10, 1), (1000, 1), (30, 1))]
    found = model_profile(graph, shapes, runs, [5, 1, 900])
    assert ([row.time_ns for row in found.rows], found.run_ns, found.rounds) == ([30], 5, 3)


class _Silent:
    """A delegate that tells no kernels: it takes every RELU."""

    name = "silent"
    max_delegated_partitions = 1

    def supports(self, graph, operator):
        return None if operator.opcode is Op.RELU else Unsupported("no")

    def compile(self, partition):
        class Compiled:
            def invoke(self, inputs, outputs):
                np.maximum(inputs[0], 0, out=outputs[0])

            def close(self):
                pass

        return Compiled()

    def describe(self):
        return {}


def test_a_partition_whose_delegate_tells_no_kernels_is_one_row():
    interpreter = Interpreter(model_content=two_partitions(), experimental_delegates=[_Silent()])
    interpreter.allocate_tensors()
    profile = interpreter.profile(1)
    assert [row.operators for row in profile.rows if row.place == "partition"] == [(1,)]
    assert len(profile.rows) == 6


def test_operators_whose_shapes_only_the_run_tells_have_rows():
    b = Builder()
    x = b.input(np.bool_, (4,))
    places, wide = b.tensor(np.int64), b.tensor(np.float32)
    b.operator(Op.WHERE, [x], [places])
    b.operator(Op.CAST, [places], [wide])
    interpreter = Interpreter(model_content=b.write([wide]))
    interpreter.allocate_tensors()
    interpreter.set_tensor(x, np.array([True, False, True, True]))
    assert [row.name for row in interpreter.profile(2).rows] == ["WHERE", "CAST"]


def test_a_profile_of_no_rounds_or_of_an_unplanned_model_is_refused():
    interpreter = Interpreter(model_content=small_network())
    with pytest.raises(RuntimeError, match="not ready"):
        interpreter.profile()
    interpreter.allocate_tensors()
    with pytest.raises(ValueError, match="at least one round, got 0"):
        interpreter.profile(0)


def compiled(data: bytes) -> tuple[CompiledModel, list, list]:
    options = Options(HardwareAccelerator.GPU | HardwareAccelerator.CPU)
    options.gpu_options.delegate_options = OPTIONS
    model = CompiledModel.from_buffer(data, options=options)
    return model, model.create_input_buffers(0), model.create_output_buffers(0)


def test_the_profiler_of_a_compiled_model_has_an_event_for_each_kernel_and_operator():
    model, inputs, outputs = compiled(two_partitions())
    inputs[0].write(np.ones((1, 8, 8, 5), np.float32))
    model.run_by_index(0, inputs, outputs)
    assert model.profiler.get_num_events() == 0
    plain = outputs[0].read(1024, np.float32)
    model.profiler.start_profiling()
    model.run_by_index(0, inputs, outputs)
    model.run_async(inputs, outputs).wait()
    model.profiler.stop_profiling()
    np.testing.assert_array_equal(outputs[0].read(1024, np.float32), plain)
    model.run_by_index(0, inputs, outputs)
    events = model.profiler.get_events()
    plan = model_plan(read_model(two_partitions()), planner_of("gpu", OPTIONS))
    first, last = ([one.function for one in part.launches] for part in plan.partitions)
    tags = [*first, "REVERSE_SEQUENCE", *last]
    assert [(event.run, event.tag) for event in events] == [(run, tag) for run in (0, 1) for tag in tags]
    assert {event.event_source for event in events} == {"delegate", "cpu"}
    assert all(event.elapsed_time_us > 0 for event in events)
    summary = model.profiler.get_profile_summary()
    assert "the sum is not the latency of a run" in summary
    assert all(tag in summary for tag in tags)
    model.profiler.reset()
    assert model.profiler.get_events() == ()
    model.close()


def test_a_model_that_a_device_runs_whole_has_events_too():
    model, inputs, outputs = compiled(small_network())
    inputs[0].write(np.ones((1, 8, 8, 3), np.float32))
    model.profiler.start_profiling()
    model.run_async(inputs, outputs).wait()
    assert [event.event_source for event in model.profiler.get_events()] == ["delegate"] * 2
    model.close()


def test_a_profile_reads_and_fills_the_buffers_of_the_caller():
    delegate = load_delegate("gpu", OPTIONS)
    interpreter = Interpreter(model_content=small_network(), experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    (given,), (made,) = interpreter.get_input_details(), interpreter.get_output_details()
    values = np.random.default_rng(1).normal(size=given["shape"]).astype(np.float32)
    target = TensorBuffer.create_from_host_memory(np.zeros(made["shape"], np.float32))
    interpreter.set_tensor(given["index"], values)
    interpreter.invoke()
    expected = interpreter.get_tensor(made["index"])
    interpreter.set_tensor(given["index"], np.zeros_like(values))
    interpreter.set_buffer_handle(given["index"], TensorBuffer.create_from_host_memory(values))
    interpreter.set_buffer_handle(made["index"], target)
    profile = interpreter.profile(1)
    assert [row.place for row in profile.rows] == ["kernel", "kernel"]
    np.testing.assert_array_equal(target.read(expected.size, np.float32).reshape(expected.shape), expected)
    interpreter.close()


def asked(path, *arguments: str):
    return CliRunner().invoke(model_verbs(), ["profile", str(path), *arguments])


def test_the_command_prints_text_of_100_columns_and_json_as_the_manual_says(tmp_path):
    path = tmp_path / "two.tflite"
    path.write_bytes(two_partitions())
    text = asked(path, *GIVEN, "--rounds", "2", "--threads", "1")
    assert text.exit_code == 0, text.output
    assert [line for line in text.stdout.splitlines() if len(line) > 100] == []
    assert "A run takes " in text.stdout
    found = json.loads(asked(path, "--delegate", "cpu", "--rounds", "1", "--json").stdout)
    names = {*found, *found["rows"][0], *found["operators"][0], *found["types"][0], *found["peaks"]}
    manual = (REPOSITORY / "docs" / "model-profile.md").read_text(encoding="utf-8")
    rows = [line for line in manual[manual.index("## The document") :].splitlines() if line.startswith("| `")]
    told = set(re.findall(r"`(\w+)`", "\n".join(rows)))
    assert names == told - {"kernel", "cpu", "partition", "none"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--delegate", "litert"], "runs whole models"),
        (["--delegate", "gup"], "did you mean 'gpu'?"),
        (["--input", "x=1"], "not of the form NAME=LOW..HIGH"),
        (["--input", "t0=5..1"], "not of the form NAME=LOW..HIGH"),
        (["--shape", "t0=a"], "not of the form NAME=N,N,..."),
        (["--delegate", "cpu", "--input", "absent=0..1"], "'absent' is not an input"),
    ],
)
def test_what_cannot_be_profiled_ends_with_2_and_one_line(tmp_path, arguments, said):
    path = tmp_path / "net.tflite"
    path.write_bytes(small_network())
    told = asked(path, *arguments)
    assert (told.exit_code, told.stdout) == (2, "")
    assert said in told.stderr
    assert len(told.stderr.splitlines()) == 1


@pytest.mark.parametrize("form", ["tables", "csv", "flame"])
def test_the_command_writes_litert_s_tables_and_a_flame_graph(tmp_path, form):
    path = tmp_path / "net.tflite"
    path.write_bytes(small_network())
    found = asked(path, "--delegate", "cpu", "--rounds", "1", "--format", form)
    assert found.exit_code == 0, found.output
    begin, operator = {
        "tables": ("Profiling Info for Benchmark Initialization:", "\tCONV_2D\t"),
        "csv": ("Profiling Info for Benchmark Initialization:", "CONV_2D, "),
        "flame": ("<!doctype html>", "0 CONV_2D"),
    }[form]
    assert found.stdout.startswith(begin)
    assert operator in found.stdout.replace(" " * 33, "")
    assert asked(path, "--format", "xml").exit_code == 2


def test_peaks_grow_with_neither_the_model_nor_its_inputs_and_bound_large_products():
    """A product of 768 rows reaches most of what the peak says, so neither is off by a factor."""
    peaks = processor_peaks(1)
    square = np.ones((768, 768), np.float32)
    with one_blas_thread():
        times = [timeit(lambda: square @ square, number=1) for _ in range(5)]
    assert 0.2 < peaks.gflops * 1e9 * min(times) / (2 * 768**3) < 5
    assert 0.5 < peaks.gigabytes < 2000


def test_an_input_of_indices_that_are_computed_with_asks_for_its_range_and_takes_it(tmp_path):
    b = Builder()
    ids, moved, y = (
        b.input(np.int32, (3,), name="ids"),
        b.tensor(np.int32, (3,)),
        b.tensor(np.float32, (3, 2)),
    )
    b.operator(Op.ADD, [ids, b.constant(np.ones(3, np.int32))], [moved])
    b.operator(Op.GATHER, [b.constant(np.ones((6, 2), np.float32)), moved], [y], {"axis": 0})
    path = tmp_path / "gather.tflite"
    path.write_bytes(b.write([y]))
    refused = asked(path, "--delegate", "cpu")
    assert refused.exit_code == 2
    assert "--input" in refused.stderr
    taken = asked(path, "--delegate", "cpu", "--input", "ids=0..4")
    assert taken.exit_code == 0, taken.output


def test_delegates_take_their_operators_in_the_order_of_the_command_line(tmp_path):
    path = tmp_path / "two.tflite"
    path.write_bytes(two_partitions())
    # The first takes what is in front of the operator that no kernel runs, the second what it left behind.
    first = [*GIVEN, "--option", "last_delegate_node_index=1", "--rounds", "1", "--json"]
    alone, both = (asked(path, *first, *more) for more in ([], ["--then", f"gpu:{','.join(GIVEN[1::2])}"]))
    kernels = [
        {i for row in json.loads(found.stdout)["rows"] if row["place"] == "kernel" for i in row["operators"]}
        for found in (alone, both)
    ]
    assert kernels == [{0, 1}, {0, 1, 3, 4, 5}]
    assert json.loads(both.stdout)["delegate"] == "gpu, gpu"
    for arguments, text in (
        (["--then", "litert"], "runs whole models, so it cannot take what another one left"),
        (["--delegate", "cpu", "--then", "gpu"], "cpu leaves no operators to other delegates"),
    ):
        refused = asked(path, *arguments)
        assert refused.exit_code == 2
        assert text in refused.output
