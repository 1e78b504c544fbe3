"""`benchmark_model`: flags, stop rule, statistics, lines that parsers read, bad input."""

from __future__ import annotations

import json
import os
import re
import subprocess
from importlib.metadata import entry_points

import numpy as np
import pytest
from typer.testing import CliRunner

from agent.model_verbs import model_verbs
from orchestrator.results.imports.reading import read_results
from runtime.common.litert_statistics import Statistics
from runtime.evaluation.__main__ import TOOLS
from runtime.evaluation.__main__ import main as tools
from runtime.evaluation.benchmark_model import main
from runtime.evaluation.flags import FlagError, benchmark_flags, parse
from runtime.evaluation.loop import Pace, StopRule, run_loop
from runtime.evaluation.report import delegate_line
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.api.test_interpreter_api import two_signatures
from tests.runtime.models import Arg, Builder, Out, one_operator

QUICK = ("--num_runs=3", "--min_secs=0", "--warmup_min_secs=0")
STATISTICS = (
    r"count=\d+ (first=\d+ curr=\d+ min=\d+ max=\d+ avg=[\d.e+]+ std=\d+ p5=\d+ median=\d+ p95=\d+|"
    r"curr=\d+\(all same\))"
)


@pytest.fixture
def graph(tmp_path):
    path = tmp_path / "relu.tflite"
    path.write_bytes(one_operator(Op.RELU, [Arg(np.zeros((1, 8), np.float32))], [Out(shape=(1, 8))]))
    return path


DELEGATED = {
    "cpu": ((), ""),
    "gpu": (
        ("--use_gpu=true", "--delegate_options=cost_aware_partitioning:false"),
        (
            r"Created TensorFlow Lite delegate for GPU\.\nExplicitly applied GPU delegate, and the model "
            r"graph will be completely executed by the delegate\.\n"
        ),
    ),
    "litert": (
        ("--use_xnnpack=true", "--num_threads=1"),
        r"Created TensorFlow Lite delegate for XNNPACK\.\n",
    ),
}


@pytest.mark.parametrize("kind", DELEGATED)
def test_lines_are_litert_s_in_order(graph, capsys, kind):
    flag, delegated = DELEGATED[kind]
    assert main([f"--graph={graph}", *QUICK, *flag]) == 0
    text = capsys.readouterr().out
    phase = (
        r"Running benchmark for at least {} iterations and at least 0 seconds but "
        r"terminate if exceeding 150 seconds\.\n"
    )
    assert re.search(
        r"\ALog parameter values verbosely: \[0\]\nMin num runs: \[3\]\n(.*\n)*?"
        rf"Graph: \[{re.escape(str(graph))}\]\nSignature to run: \[\]\n(.*\n)*?"
        rf"Loaded model {re.escape(str(graph))}\n{delegated}"
        r"The input model file size \(MB\): [\d.e-]+\nInitialized session in [\d.e+]+ms\.\n"
        + phase.format(1) + STATISTICS + r"\n" + phase.format(3) + STATISTICS + r"\n"
        r"Inference timings in us: Init: \d+, First inference: \d+, Warmup \(avg\): [\d.e+]+, "
        r"Inference \(avg\): [\d.e+]+\nNote: .*\n"
        r"Memory footprint delta from the start of the tool \(MB\): init=[\d.e-]+ overall=[\d.e-]+\n",
        text,
    ), text  # fmt: skip


BAD = {
    "no graph": ([], "--graph=FILE is missing"),
    "absent graph": (["--graph=/absent.tflite"], "/absent.tflite: No such file"),
    "near flag": (["--num_run=3"], "did you mean --num_runs?"),
    "bare flag": (["--use_gpu"], "--use_gpu=true"),
    "boolean": (["--use_gpu=yes"], "true, false, 1 and 0"),
    "number": (["--num_runs=many"], "type int"),
    "NNAPI": (["--use_nnapi=true"], "NNAPI exists on Android alone"),
    "Hexagon": (["--use_hexagon=1"], "Android alone"),
    "Core ML": (["--use_coreml=true"], "Apple's systems"),
    "open size": (["--graph=G", "--input_layer=t0", "--input_layer_shape=-1,8"], "-1 is not a size"),
    "shapes": (["--graph=G", "--input_layer=t0"], "1 names"),
    "range": (["--graph=G", "--input_layer_value_range=t0,4"], "NAME,LOW,HIGH"),
    "unknown input": (["--graph=G", "--input_layer_value_range=x,0,4"], "'x' is not an input"),
    "short file": (["--graph=G", "--input_layer_value_files=t0:G"], "the input has 32"),
    "two delegates": (["--graph=G", "--use_gpu=true", "--use_xnnpack=true"], "choose one delegate"),
    "unknown delegate": (["--graph=G", "--delegate=gpuu"], "did you mean 'gpu'?"),
    "fallback": (["--graph=G", "--require_full_delegation=true"], "Disallowed CPU fallback detected."),
    "prefix": (["--output_prefix=x"], "use --benchmark_name"),
    "unknown coverage": (
        ["--graph=G", "--use_xnnpack=true", "--require_full_delegation=true"],
        "litert does not tell what it runs",
    ),
    "profile of a whole model": (
        ["--graph=G", "--use_xnnpack=true", "--enable_op_profiling=true"],
        "litert runs whole models",
    ),
    "mode of a profile": (
        ["--graph=G", "--enable_op_profiling=true", "--op_profiling_output_mode=xml"],
        "expected one of stdout, csv, proto",
    ),
    "file of a profile": (
        ["--graph=G", "--enable_op_profiling=true", "--op_profiling_output_mode=proto"],
        "needs --op_profiling_output_file",
    ),
    "state of a whole model": (
        ["--graph=G", "--use_xnnpack=true", "--print_preinvoke_state=true"],
        "litert runs whole models",
    ),
    "file of what runs where": (
        ["--graph=G", "--export_model_runtime_info=true"],
        "needs --model_runtime_info_output_file",
    ),
    "no file": (["--graph=/nowhere/m.tflite"], "/nowhere/m.tflite: No such file"),
    "form of a descriptor": (["--graph=fd:3"], "not of the form fd:NUMBER:OFFSET:SIZE"),
    "closed descriptor": (["--graph=fd:9999:0:9"], "Bad file descriptor"),
    "signature": (["--graph=G", "--signature_to_run_for=x"], "choose one of the model's signatures: none"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_ends_with_one_line(graph, capsys, case):
    words, text = BAD[case]
    assert main([re.sub(r"(=|:)G$", rf"\g<1>{graph}", word) for word in words]) == 2
    assert text in capsys.readouterr().err


def test_refused_delegates_may_be_switched_off():
    assert not parse(["--use_nnapi=false", "--nnapi_allow_fp16=true"], benchmark_flags()).is_set("use_nnapi")
    with pytest.raises(FlagError):
        parse(["--use_nnapi=1"], benchmark_flags())


RULES = {
    "runs are a minimum": (StopRule(2, 1.0, 150.0), 0.25, 4),
    "runs decide": (StopRule(6, 1.0, 150.0), 0.25, 6),
    "the longest time ends it": (StopRule(50, 1.0, 2.0), 1.0, 3),
    "one run always": (StopRule(50, 1.0, 0.0), 5.0, 1),
    "a dry run has none": (StopRule(0, -1.0, 150.0), 1.0, 0),
}


@pytest.mark.parametrize("case", RULES)
def test_stop_rule(case):
    rule, seconds, runs = RULES[case]
    now = [0]

    def invoke() -> None:
        now[0] += int(seconds * 1e9)

    samples = run_loop(rule, Pace(), lambda: None, invoke, lambda: now[0])
    assert samples == (int(seconds * 1e6),) * runs


def test_a_frequency_overrides_the_delay_and_catches_up():
    pace = Pace(delay=3.0, frequency=2.0)
    assert [pace.pause(1, 0.1), pace.pause(2, 1.2)] == pytest.approx([0.4, -0.2])


LINES = {
    (): "count=0",
    (7, 7): "count=2 curr=7(all same)",
    (1, 2, 4): "count=3 first=1 curr=4 min=1 max=4 avg=2.33333 std=1 p5=1 median=2 p95=4",
    (40, 30, 20, 10): "count=4 first=40 curr=10 min=10 max=40 avg=25 std=11 p5=10 median=30 p95=40",
}


@pytest.mark.parametrize("samples", LINES, ids=str)
def test_statistics_are_litert_s(samples):
    assert Statistics(samples).line() == LINES[samples]


@pytest.mark.parametrize(
    ("counts", "text"),
    [((0, 3, 0), "will not be"), ((3, 3, 1), "completely"), ((2, 3, 2), "w/ 2 delegate kernels.")],
)  # fmt: skip
def test_line_of_a_delegate(counts, text):
    assert text in delegate_line("GPU", *counts)


def test_values_of_a_file_are_run_and_the_result_is_written(graph, tmp_path, capsys):
    values, out, result = tmp_path / "in.raw", tmp_path / "out.raw", tmp_path / "result.json"
    values.write_bytes(np.arange(-4, 4, dtype=np.float32).tobytes())
    words = [
        f"--input_layer_value_files=t0:{values}",
        f"--output_filepath={out}",
        f"--result_file_path={result}",
    ]
    assert (
        tools(["benchmark_model", f"--graph={graph}", *QUICK, *words, "--report_peak_memory_footprint=1"])
        == 0
    )
    assert np.frombuffer(out.read_bytes(), np.float32).tolist() == [0, 0, 0, 0, 0, 1, 2, 3]
    found = json.loads(result.read_text())
    assert found["misc_metrics"]["num_runs"] == 3
    # Its figures follow from the samples beside them.
    runs, times = found["samples_us"]["regular"], found["latency_metrics"]
    assert (len(runs), times["avg_ms"]) == (3, pytest.approx(sum(runs) / 3000))
    assert (times["median_ms"], times["p95_ms"]) == (sorted(runs)[1] / 1000, sorted(runs)[2] / 1000)
    assert times["stddev_ms"] == int(np.std(runs)) / 1000
    assert found["memory_metrics"]["peak_mem_mb"] > 0
    assert "Memory status at the end of exeution:" in capsys.readouterr().out


RESULT_PROTO = {
    "LatencyMetrics": [
        *((f"{name}_ms", "FLOAT") for name in ("avg", "min", "max", "stddev", "median", "p5", "p95", "init")),
        ("first_inference_ms", "FLOAT"), ("average_warm_up_ms", "FLOAT"),
    ],
    "MemoryMetrics": [
        ("init_footprint_kb", "INT64"), ("overall_footprint_kb", "INT64"), ("peak_mem_mb", "FLOAT"),
    ],
    "MiscMetrics": [
        ("model_size_mb", "FLOAT"), ("num_runs", "INT32"), ("num_warmup_runs", "INT32"),
        ("model_throughput_in_mb_per_sec", "FLOAT"),
    ],
    "BenchmarkResult": [
        ("name", "STRING"), ("latency_metrics", "LatencyMetrics"), ("memory_metrics", "MemoryMetrics"),
        ("misc_metrics", "MiscMetrics"),
    ],
}  # fmt: skip
"""LiteRT's benchmark_result.proto: fields in the order of their numbers."""


def message_class(name):
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="benchmark_result.proto", package="t", syntax="proto2")
    for kind, fields in RESULT_PROTO.items():
        message = file.message_type.add(name=kind)
        for number, (field, type_name) in enumerate(fields, 1):
            added = message.field.add(name=field, number=number, label=1)
            if type_name in RESULT_PROTO:
                added.type, added.type_name = 11, f".t.{type_name}"
            else:
                added.type = getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{type_name}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"t.{name}"))


def test_the_result_is_litert_s_message_which_farm_import_reads_too(graph, tmp_path, capsys):
    result = tmp_path / "result.pb"
    words = [f"--result_file_path={result}", "--benchmark_name=relu", "--report_peak_memory_footprint=1"]
    assert main([f"--graph={graph}", *QUICK, *words]) == 0
    summary = re.search(r"Init: (\d+), First inference: (\d+), .*Inference \(avg\): ([\d.e+]+)",
                        capsys.readouterr().out)  # fmt: skip
    init, first, average = map(float, summary.groups())
    found = message_class("BenchmarkResult").FromString(result.read_bytes())
    times = found.latency_metrics
    assert (found.name, found.misc_metrics.num_runs, found.misc_metrics.num_warmup_runs) == ("relu", 3, 1)
    assert times.init_ms == pytest.approx(init / 1000)
    assert times.first_inference_ms == pytest.approx(first / 1000)
    assert times.avg_ms == pytest.approx(average / 1000, rel=1e-5)
    assert times.min_ms <= times.p5_ms <= times.median_ms <= times.p95_ms <= times.max_ms
    assert found.memory_metrics.peak_mem_mb > 0
    (read,) = read_results(result.read_bytes())
    assert read.measurement.samples == 3
    assert read.measurement.latency_ms.p50 == pytest.approx(times.median_ms)


def test_the_log_is_what_farm_import_reads(graph, capsys):
    assert main([f"--graph={graph}", *QUICK, "--num_threads=1"]) == 0
    (read,) = read_results(capsys.readouterr().out.encode())
    assert (read.model, read.delegate, read.measurement.samples) == ("relu.tflite", "cpu", 3)
    assert read.measurement.settings["threads"] == "1"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_an_operator_profile_in_all_three_forms(graph, tmp_path, capsys, kind):
    asked = [f"--graph={graph}", *QUICK, *DELEGATED[kind][0], "--enable_op_profiling=true"]
    from ai_edge_litert import profiling_info_pb2

    assert main(asked) == 0
    text = capsys.readouterr().out
    assert re.search(r"Operator-wise Profiling Info.*\n=+ Run Order =+\n\t.*\[node type\]\t", text)
    shares = re.findall(r"\t +RELU\t.*?\t +([\d.]+)%", text[text.index("Operator-wise") :])
    assert shares[0] == "100.000"
    csv, proto = tmp_path / "profile.csv", tmp_path / "profile.pb"
    assert main([*asked, f"--profiling_output_csv_file={csv}"]) == 0
    assert "node type, first, avg_ms, %, cdf%, mem KB, times called, name\n" in csv.read_text()
    forms = ["--op_profiling_output_mode=proto", f"--op_profiling_output_file={proto}"]
    assert main([*asked, *forms]) == 0
    found = profiling_info_pb2.BenchmarkProfilingData.FromString(proto.read_bytes())
    assert found.model_name == "relu.tflite"
    (operator,) = found.runtime_profile.subgraph_profiles[0].per_op_profiles
    assert (operator.node_type, operator.times_called, operator.run_order) == ("RELU", 1, 0)
    assert operator.name == "[t1]:0"
    assert bool(found.runtime_profile.delegate_profiles) == (kind == "gpu")


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_the_state_is_printed_and_what_ran_where_is_litert_s_message(tmp_path, capsys, kind):
    from ai_edge_litert import (
        model_runtime_info_pb2,
        profiling_info_pb2,  # noqa: F401  # the other imports it
    )

    b = Builder()
    x, y, z = b.input(np.float32, (1, 4)), b.tensor(np.float32, (1, 4)), b.tensor(np.float32, (1, 4))
    b.operator(Op.ADD, [x, b.constant(np.ones(4, np.float32))], [y])
    b.operator(Op.RELU, [y], [z])
    graph, details = tmp_path / "two.tflite", tmp_path / "details.pb"
    graph.write_bytes(b.write([z]))
    words = ["--print_preinvoke_state=true", "--tensor_name_display_length=1"]
    words += ["--export_model_runtime_info=true", f"--model_runtime_info_output_file={details}"]
    assert main([f"--graph={graph}", *QUICK, *DELEGATED[kind][0], *words]) == 0
    text = capsys.readouterr().out
    assert "Interpreter has 1 subgraphs.\n" in text
    assert "1 Inputs: [0] -> 16B (0.00MB)\n" in text
    rows = re.findall(
        r"^Tensor (\d+) +t +kTfLiteFloat32 +(kTfLite\w+) +(\d+) / .* \[(-?\d+), -?\d+\)$", text, re.MULTILINE
    )
    assert len(rows) == 4
    assert {kind for _, kind, _, _ in rows} >= {"kTfLiteMmapRo", "kTfLiteArenaRw"}
    found = model_runtime_info_pb2.ModelRuntimeDetails.FromString(details.read_bytes())
    (subgraph,) = found.subgraphs
    assert (found.model_name, subgraph.subgraph_type) == ("two.tflite", 1)
    edges = {edge.id: (edge.allocation_type, str(edge.size)) for edge in subgraph.edges}
    assert edges == {int(index): (kind, size) for index, kind, size, _ in rows}
    assert [edge.data_type for edge in subgraph.edges] == [1] * 4
    if kind == "cpu":
        assert "Node 1 Operator RELU (not delegated)\n" in text
        assert [node.type for node in subgraph.nodes] == ["ADD", "RELU"]
        assert list(subgraph.execution_plan) == [0, 1]
    else:
        assert "Node 1 Operator RELU (delegated by node 2)\n" in text
        assert [node.delegated_to_node_id for node in subgraph.nodes[:2]] == [2, 2]
        assert list(subgraph.nodes[2].delegate_node_details.tflite_node_ids_replaced) == [0, 1]
        assert list(subgraph.execution_plan) == [2]
        # What lies between the two operators is on the device alone.
        assert "kTfLiteMemNone" in {kind for kind, _ in edges.values()}


def test_a_part_of_an_open_file_is_run_and_its_outputs_are_an_example(graph, tmp_path, capsys, monkeypatch):
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    packed, values, out = tmp_path / "packed", tmp_path / "in.raw", tmp_path / "out.pb"
    model = graph.read_bytes()
    packed.write_bytes(b"before" + model + b"behind")
    values.write_bytes(np.arange(-4, 4, dtype=np.float32).tobytes())
    with packed.open("rb") as file:
        words = [f"--graph=fd:{file.fileno()}:6:{len(model)}", f"--input_layer_value_files=t0:{values}"]
        assert main([*words, *QUICK, f"--output_proto_filepath={out}"]) == 0
        assert main([f"--graph=fd:{file.fileno()}:7:{len(model) + 6}"]) == 2
        assert f"the file has {len(model) + 12} bytes" in capsys.readouterr().err
        read = os.pread

        def shrinking(*args: int) -> bytes:
            os.truncate(packed, 100)
            return read(*args)

        monkeypatch.setattr(os, "pread", shrinking)
        assert main([words[0]]) == 2
    assert "the file ends at 100 bytes, shorter than it was" in capsys.readouterr().err
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="e", syntax="proto3")
    shapes = {
        "Floats": [("value", 1, "FLOAT", 3)], "Feature": [("float_list", 2, "Floats", 1)],
        "Entry": [("key", 1, "STRING", 1), ("value", 2, "Feature", 1)],
        "Features": [("feature", 1, "Entry", 3)], "Example": [("features", 1, "Features", 1)],
    }  # fmt: skip
    for name, fields in shapes.items():
        made = file.message_type.add(name=name)
        for field, number, kind, label in fields:
            added = made.field.add(name=field, number=number, label=label)
            if kind in shapes:
                added.type, added.type_name = 11, f".e.{kind}"
            else:
                added.type = getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{kind}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    example = message_factory.GetMessageClass(pool.FindMessageTypeByName("e.Example"))
    (entry,) = example.FromString(out.read_bytes()).features.feature
    assert (entry.key, list(entry.value.float_list.value)) == ("t1", [0, 0, 0, 0, 0, 1, 2, 3])


def test_a_signature_is_listed_and_run_by_its_names(tmp_path, capsys):
    path, values, out = tmp_path / "two.tflite", tmp_path / "in.raw", tmp_path / "out.raw"
    path.write_bytes(two_signatures())
    assert main([f"--graph={path}", "--list_signatures=true"]) == 0
    assert capsys.readouterr().out.endswith(
        "The Model contains 2 signature key(s).\nThey are listed below: \n-> Signature Key: pair\n"
        "-> Signature Key: alone\n"
    )
    assert main([f"--graph={path}", *QUICK]) == 2
    assert "choose one of the model's signatures: pair, alone" in capsys.readouterr().err
    values.write_bytes(np.array([1, -2, 3], np.float32).tobytes())
    words = ["--signature_to_run_for=alone", f"--input_layer_value_files=value:{values}"]
    assert main([f"--graph={path}", *QUICK, *words, f"--output_filepath={out}"]) == 0
    assert "Using signature: alone\n" in capsys.readouterr().out
    assert np.frombuffer(out.read_bytes(), np.float32).tolist() == [-1, 2, -3]


def test_commands_are_written_where_they_are_asked_for_and_replace_nobody_s(graph, tmp_path, capsys):
    folder = tmp_path / "bin"
    assert tools(["install", str(folder)]) == 0
    assert {path.name for path in folder.iterdir()} == set(TOOLS)
    ran = subprocess.run([folder / "benchmark_model", f"--graph={graph}", *QUICK],
                         capture_output=True, text=True, check=True)  # fmt: skip
    assert "Inference timings in us" in ran.stdout
    unknown = subprocess.run([folder / "inference_diff", "--model_fil=x"],
                             capture_output=True, text=True, check=False)  # fmt: skip
    assert (unknown.returncode, "did you mean --model_file?" in unknown.stderr) == (2, True)
    assert tools(["install", str(folder)]) == 0, "its own commands are replaced"
    (folder / "inference_diff").write_bytes(b"\x7fELF")
    assert tools(["install", str(folder)]) == 2
    assert "is another program" in capsys.readouterr().err
    assert (folder / "inference_diff").read_bytes() == b"\x7fELF"


def test_no_command_of_litert_s_names_is_installed_unasked():
    scripts = {one.name for one in entry_points(group="console_scripts") if one.dist.name == "delegate-farm"}
    assert scripts == {"farm", "farm-agent"}


def test_farm_bench_takes_the_file_as_a_word(graph, monkeypatch):
    monkeypatch.setenv("FARM_RUNNER_SANDBOX", "off")
    app = model_verbs()
    ran = CliRunner().invoke(app, ["bench", str(graph), "--dry_run=true"])
    assert ran.exit_code == 0, ran.output
    assert "count=0" in ran.output
    assert CliRunner().invoke(app, ["bench", str(graph), "--num_rums=3"]).exit_code == 2
