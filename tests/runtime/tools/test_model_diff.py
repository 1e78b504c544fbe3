"""`farm model diff` and LiteRT's Inference Diff: statistics, lines, figures, verdicts and wrong calls."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from runtime.delegates.cpu import CPU
from runtime.errors import FarmRuntimeError
from runtime.evaluation.inference_diff import main
from runtime.measure.inputs import InputRule, InputSpecNeededError
from runtime.model.reader import load_model
from runtime.model.schema import BuiltinOperator as Op
from runtime.tools.model_diff import comparing
from runtime.tools.model_diff.comparing import Difference, Request, Summary, batches, difference, mean_error
from runtime.tools.model_diff.printed import document, evaluation_metrics, litert_lines
from runtime.tools.model_diff.running import GaussianInputs, Setting
from runtime.tools.model_diff.worker import WorkerError, opened
from runtime.tools.verbs import model_verbs
from tests.runtime.demo_models import demo_model
from tests.runtime.models import Builder, per_tensor
from tests.runtime.tools.test_detector import break_detector, detector, swapped_classes
from tests.runtime.tools.test_model_bisect import GPU, Network, break_kernel
from tests.sweeps import rarely

LINES = [
    r"Num evaluation runs: \d+",
    r"Reference run latency: avg=\d+(\.\d+)?(e\+\d\d)?\(us\), std_dev=\d+\(us\)",
    r"Test run latency: avg=\d+(\.\d+)?(e\+\d\d)?\(us\), std_dev=\d+\(us\)",
    r"OutputDiff\[0\]: avg_error=\d+(\.\d+)?(e[+-]\d\d)?, std_dev=\d+(\.\d+)?(e[+-]\d\d)?",
]
"""LiteRT's lines, as its users' scripts read them."""


def network(tmp_path: Path) -> Path:
    made = Network().conv().relu().depthwise().pool().softmax()
    file = tmp_path / "network.tflite"
    file.write_bytes(made.builder.write([made.end]))
    return file


def file_of(tmp_path: Path, data: bytes) -> Path:
    file = tmp_path / "model.tflite"
    file.write_bytes(data)
    return file


def found_in(
    file: Path, setting: Setting, reference: str = "litert", runs: int = 5, **rules: InputRule
) -> Difference:
    return difference(load_model(file), file, Request(setting, reference, runs, 3, rules))


def gpu() -> Setting:
    return Setting("gpu", GPU)


def cpu() -> Setting:
    return Setting(CPU, {"threads": 1})


# Statistics


@pytest.mark.parametrize(
    ("values", "average", "deviation", "smallest", "largest", "last"),
    [
        ([4.0], 4.0, 0.0, 4.0, 4.0, 4.0),
        ([1, 2, 3, 4], 2.5, 1.25**0.5, 1, 4, 4),
        ([0.1] * 50, 0.1, 0.0, 0.1, 0.1, 0.1),
        ([0.0, 0.0], 0.0, 0.0, 0.0, 0.0, 0.0),
        ([3, 1], 2.0, 1.0, 1, 3, 1),
    ],
)
def test_a_deviation_is_the_populations(
    values: list[float], average: float, deviation: float, smallest: float, largest: float, last: float
) -> None:
    found = Summary.of(values)
    assert found.average == pytest.approx(average, rel=1e-15)
    assert found.deviation == pytest.approx(deviation, abs=1e-15)
    assert (found.smallest, found.largest, found.last) == (smallest, largest, last)
    assert (found.count, found.total) == (len(values), pytest.approx(sum(values)))


@pytest.mark.parametrize(
    ("test", "reference", "error"),
    [
        (np.float32([1, 2]), np.float32([2, 4]), 1.5),
        (np.uint8([0, 255]), np.uint8([255, 0]), 255.0),
        (np.int8([-128]), np.int8([127]), 255.0),
        (np.bool_([True, False]), np.bool_([False, False]), 0.5),
        (np.float32([]), np.float32([]), 0.0),
        (np.float32([1]), np.float32([1, 1]), np.nan),
        (np.float32([np.nan]), np.float32([1]), np.nan),
    ],
)
def test_the_error_of_a_run_is_of_raw_values(test: Any, reference: Any, error: float) -> None:
    assert mean_error(test, reference) == pytest.approx(error, nan_ok=True)


@pytest.mark.parametrize(
    ("runs", "sizes"), [(1, [1]), (4, [4]), (5, [3, 2]), (9, [3, 3, 3]), (50, [4] * 11 + [3] * 2)]
)
def test_runs_are_judged_in_batches_of_more_than_one(runs: int, sizes: list[int]) -> None:
    assert batches(runs) == sizes


def made_up(error: Summary, latency: Summary) -> Difference:
    side = comparing.Side(cpu(), {}, latency)
    judgement = comparing.Judgement(None, None, None, None, "")
    output = comparing.OutputDifference("y", "value", error, judgement)
    return Difference(50, 0, side, side, "", (output,), ())


@pytest.mark.parametrize(
    ("error", "deviation", "line"),
    [
        (1.9627712e-05, 6.957671e-06, "OutputDiff[0]: avg_error=1.96277e-05, std_dev=6.95767e-06"),
        (0.0, 0.0, "OutputDiff[0]: avg_error=0, std_dev=0"),
        (0.25, 1234567.0, "OutputDiff[0]: avg_error=0.25, std_dev=1.23457e+06"),
        (0.0001234567, 100000.0, "OutputDiff[0]: avg_error=0.000123457, std_dev=100000"),
        (float("nan"), float("nan"), "OutputDiff[0]: avg_error=nan, std_dev=nan"),
    ],
)
def test_numbers_are_those_of_a_default_stream(error: float, deviation: float, line: str) -> None:
    summary = Summary(50, error, error, error, error, error, deviation)
    latency = Summary(150, 84000, 80000, 90000, 12654630, 84364.2, 12525.9)
    lines = list(litert_lines(made_up(summary, latency)))
    assert lines[0] == "Num evaluation runs: 50"
    assert lines[1] == "Reference run latency: avg=84364.2(us), std_dev=12525(us)"
    assert lines[2] == "Test run latency: avg=84364.2(us), std_dev=12525(us)"
    assert lines[3] == line


# Inputs

DETAIL = {"name": "x", "shape": [20, 500], "quantization": (0.0, 0)}


@pytest.mark.parametrize(
    ("dtype", "quantization", "rule", "low", "high"),
    [
        (np.float32, 0.0, InputRule(), -1, 1),
        (np.float16, 0.0, InputRule(), -1, 1),
        (np.float32, 0.0, InputRule(low=2, high=6), 2, 6),
        (np.uint8, 0.5, InputRule(), 0, 255),
        (np.int8, 0.5, InputRule(), -128, 127),
        (np.int32, 0.0, InputRule(low=0, high=9), 0, 9),
        (np.bool_, 0.0, InputRule(), 0, 1),
    ],
)
def test_inputs_are_gaussian_over_the_range(
    dtype: Any, quantization: float, rule: InputRule, low: float, high: float
) -> None:
    detail = {**DETAIL, "dtype": dtype, "quantization": (quantization, 0)}
    source = GaussianInputs([detail], {"x": rule}, 1)
    (first,), (second,) = source.draw(), source.draw()
    assert first.dtype == dtype
    assert first.shape == (20, 500)
    assert not np.array_equal(first, second)
    values = first.astype(np.float64)
    assert low <= values.min() <= low + 0.05 * (high - low)
    assert high >= values.max() >= high - 0.05 * (high - low)
    assert values.mean() == pytest.approx((low + high) / 2, abs=0.02 * (high - low))
    if first.dtype.kind == "f":
        # A normal deviate of 1/3 that is held to 1.5 deviations: 0.743 of it is left.
        assert values.std() / (high - low) == pytest.approx(0.743 / 3, rel=0.05)
    (again,) = GaussianInputs([detail], {"x": rule}, 1).draw()
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.object_])
def test_indices_need_a_range_and_texts_have_none(dtype: Any) -> None:
    with pytest.raises(InputSpecNeededError, match="'x'"):
        GaussianInputs([{**DETAIL, "dtype": dtype}], {}, 1)


# Comparisons


@pytest.mark.usefixtures("own_processes")
@pytest.mark.parametrize("reference", ["litert", "cpu"])
def test_identical_settings_do_not_differ(tmp_path: Path, reference: str) -> None:
    setting = comparing.REFERENCES[reference]
    found = found_in(network(tmp_path), setting, reference)
    (output,) = found.outputs
    assert (output.error.average, output.error.deviation, output.error.largest) == (0.0, 0.0, 0.0)
    assert (output.judgement.max_abs, output.judgement.verdict) == (0.0, "pass")
    assert (found.runs, output.error.count) == (5, 5)
    assert found.reference.latency.count == found.test.latency.count == 15


@pytest.mark.parametrize(
    "name", ["face_detection_short_range", rarely("torchvision_mobilenet_v2__static_int8")]
)
def test_a_published_model_agrees_with_litert_on_the_cpu(tmp_path: Path, name: str) -> None:
    found = found_in(file_of(tmp_path, demo_model(name)), cpu(), runs=2)
    assert {one.judgement.verdict for one in found.outputs} == {"pass"}, found.judgement.note
    assert all(one.error.count == 2 for one in found.outputs)


@pytest.mark.parametrize("reference", comparing.REFERENCES)
@pytest.mark.parametrize("setting", [cpu(), gpu()], ids=["cpu", "gpu"])
def test_a_right_delegate_is_within_the_rule(tmp_path: Path, setting: Setting, reference: str) -> None:
    found = found_in(network(tmp_path), setting, reference)
    assert found.judgement.verdict == "pass", found.judgement.note
    (output,) = found.outputs
    assert output.error.average < 1e-6
    assert output.judgement.cosine == pytest.approx(1)
    assert output.judgement.top1 == 1.0


@pytest.mark.parametrize("delegate", ["cpu", "gpu"])
@pytest.mark.parametrize("opcode", [Op.DEPTHWISE_CONV_2D, rarely(Op.SOFTMAX)])
def test_a_broken_delegate_is_outside_the_rule(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, delegate: str, opcode: Op
) -> None:
    break_kernel(monkeypatch, delegate, opcode)
    found = found_in(network(tmp_path), gpu() if delegate == "gpu" else cpu())
    assert found.judgement.verdict == "fail"
    assert found.outputs[0].error.average > 0.0
    assert found.outputs[0].judgement.note


def test_fp16_is_judged_by_its_own_rule(tmp_path: Path) -> None:
    found = found_in(network(tmp_path), Setting("gpu", {**GPU, "precision": "fp16"}))
    assert "4 honest runs explain (fp16)" in found.rule
    assert found.judgement.verdict == "pass"


def test_an_index_is_judged_by_the_share_of_equal_ones(tmp_path: Path) -> None:
    b = Builder()
    x = b.input(np.float32, (4, 10))
    places = b.tensor(np.int32, (4,))
    b.operator(Op.ARG_MAX, [x, b.constant(np.array(1, np.int32))], [places], {"output_type": 2})
    found = found_in(file_of(tmp_path, b.write([places])), cpu())
    (output,) = found.outputs
    assert (output.kind, output.judgement.equal, output.judgement.verdict) == ("index", 1.0, "pass")


def test_detections_are_judged_by_their_matches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = file_of(tmp_path, detector())
    # Noise over this range makes detections above the bound.
    rule = {"t0": InputRule(low=-3, high=3)}
    found = found_in(file, cpu(), **rule)
    assert {one.kind for one in found.outputs} == {"detections"}
    assert found.judgement.verdict == "pass"
    assert found.judgement.matching is not None
    assert found.judgement.matching.matched > 0
    assert found.judgement.matching.missing == found.judgement.matching.added == 0
    break_detector(monkeypatch, swapped_classes)
    wrong = found_in(file, cpu(), **rule)
    assert wrong.judgement.verdict == "fail"
    assert wrong.judgement.matching is not None
    assert wrong.judgement.matching.missing > 0


def test_a_quantised_input_and_another_shape_reach_both_settings(tmp_path: Path) -> None:
    quantization = per_tensor(0.1, 3)
    b = Builder()
    x = b.input(np.int8, (1, 4), quantization, shape_signature=(-1, 4))
    y = b.tensor(np.int8, (1, 4), quantization, shape_signature=(-1, 4))
    b.operator(Op.RELU, [x], [y])
    found = found_in(file_of(tmp_path, b.write([y])), cpu(), "builtin-ref", t0=InputRule(shape=(6, 4)))
    assert found.inputs[0].shape == (6, 4)
    assert found.judgement.verdict == "pass"


def test_values_that_are_no_numbers_are_counted(tmp_path: Path) -> None:
    b = Builder()
    x, y = b.input(np.float32, (4, 50)), b.tensor(np.float32, (4, 50))
    b.operator(Op.LOG, [x], [y])
    (output,) = found_in(file_of(tmp_path, b.write([y])), cpu()).outputs
    assert 300 < output.judgement.nonfinite < 700
    assert output.judgement.verdict == "pass"
    assert np.isnan(output.error.average)


def test_a_state_goes_on_in_both_settings(tmp_path: Path) -> None:
    b = Builder()
    x, y = b.input(np.float32, (2, 6)), b.tensor(np.float32, (2, 4))
    rng = np.random.default_rng(1)
    weights = [b.constant(rng.normal(0, 0.5, shape).astype(np.float32)) for shape in ((4, 6), (4, 4), (4,))]
    state = b.tensor(np.float32, (2, 4), is_variable=True)
    b.operator(Op.RNN, [x, *weights, state], [y], {"fused_activation_function": 4})
    found = found_in(file_of(tmp_path, b.write([y])), cpu())
    assert found.judgement.verdict == "pass"
    assert found.judgement.max_abs is not None
    assert found.judgement.max_abs < 1e-5


def test_texts_have_no_difference(tmp_path: Path) -> None:
    b = Builder()
    x, y = b.input(np.float32, (2,)), b.tensor(np.float32, (2,))
    text = b.constant(np.array([b"a", b"b"], np.object_))
    b.operator(Op.ABS, [x], [y])
    with pytest.raises(FarmRuntimeError, match="holds no numbers"):
        found_in(file_of(tmp_path, b.write([y, text])), cpu())


def test_a_runtime_that_dies_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    with opened(Setting("litert", {"threads": 1}), network(tmp_path), {}) as running:
        running._process.kill()  # type: ignore[attr-defined]
        with pytest.raises(WorkerError, match="litert was ended by SIGKILL"):
            running.run([np.zeros((1, 8, 8, 16), np.float32)], 3)


@pytest.mark.usefixtures("own_processes")
def test_a_model_that_litert_refuses_is_an_error(tmp_path: Path) -> None:
    b = Builder()
    x, y = b.input(np.float32, (2,)), b.tensor(np.float32, (2,))
    b.operator(Op.CUSTOM, [x], [y], custom_code="NobodyHasThis")
    with pytest.raises(WorkerError, match="NobodyHasThis"):
        found_in(file_of(tmp_path, b.write([y])), cpu())


# The command


def called(*words: str) -> tuple[int, str, str]:
    ran = CliRunner().invoke(model_verbs(), ["diff", *words])
    assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exception
    return ran.exit_code, ran.stdout, ran.stderr


def test_the_command_prints_litert_s_lines_first(tmp_path: Path) -> None:
    code, out, _ = called(str(network(tmp_path)), "--delegate", "cpu", "--runs", "4", "--per-operator")
    assert code == 0, out
    lines = out.splitlines()
    for line, pattern in zip(lines, LINES, strict=False):
        assert re.fullmatch(pattern, line)
    assert "cpu" in lines[4]
    assert "cosine 1" in lines[5]
    assert lines[5].endswith("0 NaN or Inf")
    assert lines[6] == "  within the rule"
    assert lines[7].startswith("  operator 0 CONV_2D: rel_l2 ")


def test_json_has_all_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    break_kernel(monkeypatch, "cpu", Op.SOFTMAX)
    words = ["--delegate", "cpu", "--runs", "4", "--seed", "5", "--per-operator", "--json"]
    code, out, _ = called(str(network(tmp_path)), *words)
    assert code == 1
    told = json.loads(out)
    assert (told["runs"], told["seed"], told["verdict"]) == (4, 5, "fail")
    assert told["test"]["latency_us"]["count"] == 12
    (output,) = told["outputs"]
    assert output["error"]["average"] > 0
    assert output["rel_l2"] > 1e-3
    assert [one["name"] for one in told["operators"] if one["is_suspect"]] == ["SOFTMAX"]


def test_a_figure_that_is_no_number_is_null_in_json() -> None:
    nan = Summary(1, *[float("nan")] * 6)
    assert document(made_up(nan, nan), "f")["outputs"][0]["error"]["average"] is None


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["missing.tflite"], "missing.tflite"),
        (["{file}", "--delegate", "gpuu"], "did you mean 'gpu'"),
        (["{file}", "--delegate", "cpu", "--option", "thread=3"], "did you mean 'threads'"),
        (["{file}", "--delegate", "cpu", "--option", "threads=many"], "threads"),
        (["{file}", "--option", "precision"], "NAME=VALUE"),
        (["{file}", "--runs", "0"], "--runs"),
        (["{file}", "--reference", "other"], "--reference"),
        (["{file}", "--input", "nobody=0..3"], "'nobody' is not an input"),
        (["{file}", "--input", "t0=3..0"], "NAME=LOW..HIGH"),
        (["{indices}", "--delegate", "cpu"], "--input"),
        (["{corrupt}"], "corrupt.tflite"),
    ],
)
def test_a_wrong_call_is_one_line_and_two(tmp_path: Path, words: list[str], error: str) -> None:
    files = {
        "file": network(tmp_path),
        "indices": tmp_path / "i.tflite",
        "corrupt": tmp_path / "corrupt.tflite",
    }
    b = Builder()
    x, y = b.input(np.int32, (3,)), b.tensor(np.int32, (3,))
    b.operator(Op.ABS, [x], [y])
    files["indices"].write_bytes(b.write([y]))
    files["corrupt"].write_bytes(b"TFL3 is not the beginning")
    code, out, err = called(*[word.format(**files) for word in words])
    assert code == 2
    assert error in err
    assert out == ""


# LiteRT's spelling


def test_inference_diff_is_a_program_that_prints_litert_s_lines(tmp_path: Path) -> None:
    file, metrics = network(tmp_path), tmp_path / "metrics.pb"
    ran = subprocess.run(
        [
            sys.executable, "-P", "-m", "runtime.evaluation", "inference_diff",
            f"--model_file={file}", "--num_runs=3", f"--output_file_path={metrics}", "--delegate=cpu",
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert len(lines) == len(LINES)
    for line, pattern in zip(lines, LINES, strict=True):
        assert re.fullmatch(pattern, line), line
    assert metrics.read_bytes()[:2] == b"\x08\x03"


def test_the_default_of_inference_diff_is_the_reference_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([f"--model_file={network(tmp_path)}", "--num_runs=2"]) == 0
    assert capsys.readouterr().out.splitlines()[3] == "OutputDiff[0]: avg_error=0, std_dev=0"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--model_file={file}", "--num_run=3"], "did you mean --num_runs?"),
        (["--model_file={file}", "--num_runs=0"], "at least 1"),
        (["--model_file={file}", "--num_runs=ten"], "type int"),
        (["--model_file={file}", "--use_gpu=yes"], "true, false"),
        (["--model_file={file}", "--use_gpu"], "needs a value"),
        (["--model_file={file}", "--delegate=hexagon"], "is not offered"),
        (["--model_file={file}", "--delegate=gpuu"], "did you mean 'gpu'"),
        (["--model_file=missing.tflite"], "missing.tflite"),
        ([], "--model_file"),
        (["model.tflite"], "is not of the form --NAME=VALUE"),
    ],
)
def test_a_wrong_call_of_inference_diff_is_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], error: str
) -> None:
    file = network(tmp_path)
    assert main([one.format(file=file) for one in arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert error in told.err


def test_the_metrics_are_litert_s_message() -> None:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="stages.proto", package="tflite.evaluation")
    kinds = {"int32": 5, "int64": 3, "double": 1, "float": 2}

    def message(name: str, **fields: tuple[int, str]) -> None:
        added = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            is_many = kind.startswith("*")
            one = added.field.add(name=field, number=number, label=3 if is_many else 1)
            if kind in kinds:
                one.type = kinds[kind]
            else:
                one.type, one.type_name = 11, ".tflite.evaluation." + kind.lstrip("*")

    names = ("last_us", "max_us", "min_us", "sum_us")
    whole = {name: (number, "int64") for number, name in enumerate(names, 1)}
    message("LatencyMetrics", **whole, avg_us=(5, "double"), std_deviation_us=(6, "int64"))
    message(
        "AccuracyMetrics",
        max_value=(1, "float"), min_value=(2, "float"), avg_value=(3, "double"), std_deviation=(4, "float"),
    )  # fmt: skip
    message(
        "InferenceProfilerMetrics",
        reference_latency=(1, "LatencyMetrics"),
        test_latency=(2, "LatencyMetrics"),
        output_errors=(3, "*AccuracyMetrics"),
    )
    message("ProcessMetrics", inference_profiler_metrics=(5, "InferenceProfilerMetrics"))
    message("EvaluationStageMetrics", num_runs=(1, "int32"), process_metrics=(2, "ProcessMetrics"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    described = pool.FindMessageTypeByName("tflite.evaluation.EvaluationStageMetrics")
    error, latency = Summary.of([0.5, 0.25]), Summary.of([100, 300, 2**40])
    found = made_up(error, latency)
    found = replace(found, test=replace(found.test, latency=Summary.of([7, 7])))
    read = message_factory.GetMessageClass(described).FromString(evaluation_metrics(found))
    metrics = read.process_metrics.inference_profiler_metrics
    assert read.num_runs == 50
    assert (metrics.reference_latency.last_us, metrics.reference_latency.min_us) == (2**40, 100)
    assert metrics.reference_latency.max_us == 2**40
    assert metrics.reference_latency.sum_us == 400 + 2**40
    assert metrics.reference_latency.avg_us == latency.average
    assert metrics.reference_latency.std_deviation_us == int(latency.deviation)
    assert (metrics.test_latency.avg_us, metrics.test_latency.std_deviation_us) == (7, 0)
    (output,) = metrics.output_errors
    assert (output.max_value, output.min_value, output.avg_value) == (0.5, 0.25, 0.375)
    assert output.std_deviation == 0.125
