"""`benchmark_model`: flags, stop rule, statistics, lines that parsers read, bad input."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from runtime.common.litert_statistics import Statistics
from runtime.evaluation.__main__ import main as tools
from runtime.evaluation.benchmark_model import main
from runtime.evaluation.flags import FlagError, benchmark_flags, parse
from runtime.evaluation.loop import Pace, StopRule, run_loop
from runtime.evaluation.report import delegate_line
from runtime.evaluation.verb import bench_verb
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, one_operator

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
    "profile": (["--enable_op_profiling=true"], "farm model profile"),
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
    assert found["memory_metrics"]["peak_mem_mb"] > 0
    assert "Memory status at the end of exeution:" in capsys.readouterr().out


def test_farm_bench_takes_the_file_as_a_word(graph):
    app = typer.Typer()
    app.add_typer(bench_verb(), name="bench")
    app.command("other")(lambda: None)
    ran = CliRunner().invoke(app, ["bench", str(graph), "--dry_run=true"])
    assert ran.exit_code == 0, ran.output
    assert "count=0" in ran.output
    assert CliRunner().invoke(app, ["bench", str(graph), "--num_rums=3"]).exit_code == 2
