"""Other tools' files are read with their units; an error about a damaged or unknown file says what was
expected.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from orchestrator.results.imports.reading import read_results
from orchestrator.results.imports.reports import ImportedResult, NotReadableError
from runtime.model.schema import BuiltinOperator
from tests.runtime.models import Builder

LOG = """\
INFO: STARTING!
INFO: Log parameter values verbosely: [0]
INFO: Num threads: [4]
INFO: Graph: [/data/local/tmp/mobilenet_v2.tflite]
INFO: Loaded model /data/local/tmp/mobilenet_v2.tflite
INFO: Explicitly applied GPU delegate, and the model graph will be completely executed by the delegate.
INFO: The input model file size (MB): 13.9
INFO: Initialized session in 92.3ms.
INFO: Running benchmark for at least 1 iterations and at least 0.5 seconds but terminate.
INFO: count=91 first=187533 curr=5102 min=4980 max=187533 avg=7100.5 std=20000

INFO: Running benchmark for at least 50 iterations and at least 1 seconds but terminate.
INFO: count=198 first=5100 curr=4990 min=4895 max=6100 avg=5.04250e+03 std=102 p5=4910 median=5020 p95=5200

INFO: Inference timings in us: Init: 92318, First inference: 187533, Warmup (avg): 7100, Inference (avg): 5043
INFO: Timings (microseconds): count=198 first=1 curr=1 min=1 max=1 avg=1 std=0
INFO: Memory footprint delta from the start of the tool (MB): init=40.5 overall=64
"""
OLD = """\
Loaded model m.tflite
count=50 first=249042 curr=250889 min=247067 max=254474 avg=249684 std=1442
Inference timings in us: Init: 16242, First inference: 360262, Warmup (avg): 304586, Inference (avg): 249684
"""
MESSAGE = """\
name: "mobilenet"
latency_metrics {
  init_ms: 12.5
  first_inference_ms: 8
  average_warm_up_ms: 6
  avg_ms: 5.5
  median_ms: 5.25
  p95_ms: 7
}
memory_metrics { init_footprint_kb: 100 overall_footprint_kb: 2048 peak_mem_mb: 3.5 }
misc_metrics { model_size_mb: 4 num_runs: 60 num_warmup_runs: 3 }
"""
BLOCK = """\

========================================
 BENCHMARK RESULTS
========================================
Model initialization:  3.50 ms
Warmup (first):        2.50 ms
Warmup (avg):          2.00 ms (5 runs)
Inference (avg):       1.50 ms (50 runs)
Inference (min):       1.00 ms
Inference (max):       2.00 ms
Inference (median):    1.25 ms
Inference (std):       0.10 ms
Inference (p5):        1.10 ms
Inference (p95):       1.75 ms
Throughput:            10.00 MB/s
Fully accelerated:     False
========================================
"""


def written(field: int, value: float | bytes) -> bytes:
    """Encode a field as Protocol Buffers do; the sizes and numbers here are below 128."""
    if isinstance(value, float):
        return bytes([field << 3 | 5]) + struct.pack("<f", value)
    if isinstance(value, int):
        return bytes([field << 3, value])
    return bytes([field << 3 | 2, len(value)]) + value


LATENCY = {1: 5.5, 2: 4.0, 5: 5.25, 7: 7.0, 8: 12.5, 9: 8.0, 10: 6.0}
BINARY = (
    written(1, b"mobilenet")
    + written(2, b"".join(written(field, value) for field, value in LATENCY.items()))
    + written(3, written(1, 100) + written(2, 104) + written(3, 3.5))
    + written(4, written(1, 4.0) + written(2, 60) + written(3, 3) + written(5, 190.0) + written(15, 7))
)
"""The same result as `MESSAGE`, with a field that no release has yet."""

LITERT = {
    "model": "/models/iris.tflite",
    "model_size_mb": 0.1,
    "accelerators": ["gpu", "cpu"],
    "signature": "serving_default",
    "fully_accelerated": False,
    "num_threads": 1,
    "latency": {
        "init_ms": 3.5, "warmup_first_ms": 2.5, "warmup_avg_ms": 2, "num_warmup_runs": 5, "avg_ms": 1.5,
        "min_ms": 1, "max_ms": 2, "median_ms": 1.25, "std_ms": 0.1, "p5_ms": 1.1, "p95_ms": 1.75,
        "num_runs": 50,
    },
    "throughput_mb_s": 10.0,
}  # fmt: skip
AI_HUB = {
    "execution_summary": {
        "estimated_inference_time": 127,
        "estimated_inference_peak_memory": 14_450_688,
        "first_load_time": 311_671,
        "warm_load_time": 198_597,
        "all_inference_times": [127, 129, 140, 128],
    },
    "execution_detail": [{"name": "conv", "compute_unit": "NPU"}] * 3 + [{"compute_unit": "CPU"}],
}


def one(text: str) -> ImportedResult:
    (found,) = read_results(text.encode())
    return found


def test_a_log_of_benchmark_model_is_read_in_milliseconds() -> None:
    found = one(LOG)
    latency = found.measurement.latency_ms
    assert (found.tool, found.model, found.delegate) == ("benchmark_model", "mobilenet_v2.tflite", "gpu")
    assert (latency.init, latency.first, latency.p50, latency.p95) == (92.318, 187.533, 5.02, 5.2)
    assert (latency.mean, latency.p99, latency.ci95) == (5.043, None, None)
    assert found.measurement.samples == 198
    assert found.measurement.memory_peak_bytes == 64 << 20
    assert found.measurement.settings["threads"] == "4"
    assert found.measurement.accuracy.verdict is None


def test_a_log_of_an_old_release_has_a_mean_alone_and_several_runs_are_several_results() -> None:
    old = one(OLD)
    assert (old.measurement.latency_ms.mean, old.measurement.latency_ms.p50) == (249.684, None)
    assert "the file does not have it" in old.measurement.latency_ms.missing["p50"]
    assert [r.model for r in read_results((OLD + LOG).encode())] == ["m.tflite", "mobilenet_v2.tflite"]


DIFF = """\
INFO: Evaluated: 100%
Num evaluation runs: 50
Reference run latency: avg=84364.2(us), std_dev=12525(us)
Test run latency: avg=7281.64(us), std_dev=2089(us)
OutputDiff[0]: avg_error=1.96277e-05, std_dev=6.95767e-06
OutputDiff[1]: avg_error=0.5, std_dev=0.1
"""
TOP_K = """\
Num evaluation runs: 300
Preprocessing latency: avg=13772.5(us), std_dev=11398(us)
Inference latency: avg=76578.4(us), std_dev=14836(us)
Top-1 Accuracy: 0.733333
Top-10 Accuracy: 0.96
"""
MAP = """\
Num evaluation runs: 300
Inference latency: avg=74977.5(us), std_dev=2371(us)
Average Precision [IOU Threshold=0.5]: 0.349581
Average Precision [IOU Threshold=0.95]: 0.02
Overall mAP: 0.206576
"""
TABLE = """\
| Model | Status | Galaxy S24 (ms) |
|---|:--:|--:|
| alexnet | fully delegated | 12.3 |
| distil-whisper | partially delegated | 205 ms |
| odd | failed | - |
"""


def test_the_lists_of_the_evaluation_tools_are_read_with_their_means() -> None:
    found = one(DIFF)
    latency, accuracy = found.measurement.latency_ms, found.measurement.accuracy
    assert (found.tool, latency.mean, latency.p50, found.measurement.samples) == (
        "inference-diff", 7.28164, None, 50,
    )  # fmt: skip
    assert found.measurement.settings["reference_run_ms"] == "84.3642"
    assert [output.mean_abs for output in accuracy.outputs] == [1.96277e-05, 0.5]
    assert (accuracy.mean_abs, accuracy.verdict) == (0.5, None)
    ranks = one(TOP_K)
    assert ranks.measurement.labelled is not None
    assert (ranks.measurement.labelled.right, ranks.measurement.labelled.share) == (220, 0.733333)
    assert (ranks.measurement.settings["top1"], ranks.measurement.settings["top10"]) == ("0.733333", "0.96")
    detected = one(MAP)
    assert detected.measurement.latency_ms.mean == 74.9775
    assert detected.measurement.settings == {
        "processes": "1", "AP@0.5": "0.349581", "AP@0.95": "0.02", "mAP": "0.206576",
    }  # fmt: skip
    assert detected.measurement.labelled is not None
    assert (detected.measurement.labelled.metric, detected.measurement.labelled.share) == ("mAP", 0.206576)
    assert [r.tool for r in read_results((DIFF + TOP_K).encode())] == [
        "inference-diff",
        "image-classification",
    ]


@pytest.mark.parametrize("separator", ["|", ",", ";", "\t"])
def test_a_table_of_model_status_and_ms_is_read_in_any_form(separator: str) -> None:
    rows = [line.strip("|").split("|") for line in TABLE.splitlines() if "--" not in line]
    text = TABLE if separator == "|" else "\n".join(separator.join(c.strip() for c in row) for row in rows)
    full, partial, failed = read_results(text.encode())
    assert full.measurement is not None
    assert partial.measurement is not None
    assert (full.model, full.measurement.latency_ms.mean) == ("alexnet", 12.3)
    assert full.measurement.settings["status"] == "fully delegated"
    assert partial.measurement.latency_ms.mean == 205
    assert (failed.model, failed.measurement, failed.status) == ("odd", None, "failed")


@pytest.mark.parametrize("content", [MESSAGE.encode(), BINARY], ids=["text", "binary"])
def test_a_result_message_is_read_in_both_forms(content: bytes) -> None:
    (found,) = read_results(content)
    latency = found.measurement.latency_ms
    assert (found.model, latency.p50, latency.mean, latency.p95) == ("mobilenet", 5.25, 5.5, 7)
    assert (latency.init, latency.first, found.measurement.samples) == (12.5, 8, 60)
    assert found.measurement.memory_peak_bytes == round(3.5 * (1 << 20))


def test_what_litert_benchmark_prints_is_read_like_its_json() -> None:
    printed, report = one(BLOCK), one(json.dumps(LITERT))
    assert printed.tool == report.tool
    assert printed.measurement.latency_ms == report.measurement.latency_ms
    assert printed.measurement.samples == report.measurement.samples
    assert (printed.model, printed.delegate) == (None, "unknown"), "the block names neither"
    faster = BLOCK.replace("(median):    1.25", "(median):    1.00")
    assert [r.measurement.latency_ms.p50 for r in read_results((BLOCK + faster).encode())] == [1.25, 1.0]


def test_what_the_real_litert_benchmark_prints_is_read(tmp_path: Path) -> None:
    model, report = tmp_path / "tanh.tflite", tmp_path / "report.json"
    b = Builder()
    x, y = b.input(np.float32, (1, 64)), b.tensor(np.float32, (1, 64))
    b.operator(BuiltinOperator.TANH, [x], [y])
    model.write_bytes(b.write([y]))
    tool = [sys.executable, "-m", "ai_edge_litert.tools.benchmark_litert_model", "--num_runs", "7"]
    ran = subprocess.run(
        [*tool, "--model", model, "--num_threads", "2", "--result_json", report],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    printed, told = one(ran.stdout), one(report.read_text())
    assert (printed.model, printed.delegate) == (told.model, told.delegate) == ("tanh.tflite", "cpu")
    assert (printed.measurement.samples, printed.measurement.settings["threads"]) == (7, "2")
    assert printed.measurement.settings["fully_accelerated"] == told.measurement.settings["fully_accelerated"]
    both = [(m.p50, m.mean, m.init) for m in (printed.measurement.latency_ms, told.measurement.latency_ms)]
    assert both[0] == pytest.approx(both[1], abs=0.0051), "printed with two decimals"


def test_reports_in_json_are_read() -> None:
    litert = one(json.dumps(LITERT))
    latency = litert.measurement.latency_ms
    assert (litert.tool, litert.model, litert.delegate) == ("litert-benchmark", "iris.tflite", "gpu+cpu")
    assert (latency.init, latency.first, latency.p50, latency.mean, latency.p95) == (
        3.5,
        2.5,
        1.25,
        1.5,
        1.75,
    )
    hub = one(json.dumps(AI_HUB))
    latency = hub.measurement.latency_ms
    assert (hub.tool, hub.delegate, hub.measurement.samples) == ("ai-hub", "npu", 4)
    assert (latency.p50, latency.mean, latency.init, latency.init_warm) == (0.1285, 0.131, 311.671, 198.597)
    assert hub.measurement.memory_peak_bytes == 14_450_688
    assert hub.measurement.settings["layers_npu"] == "3"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty; expected a log of benchmark_model"),
        (b"\x0a\x04\xff\xfe\x00", "the file is binary (the message is cut off); expected"),
        (b"\x89PNG\r\n\x1a\n" + bytes(9), "the file is binary ("),
        (BINARY[:-3], "the file is binary (the message is cut off)"),
        (written(2, written(1, 5.5)), "the file is binary (expected latency_metrics { avg_ms"),
        (b"\xff" * 20, "a number of more than 64 bits"),
        (BLOCK[: BLOCK.index("Inference (p95)")].encode(), "the block of litert-benchmark is cut off"),
        (BLOCK.replace("1.25", "n/a").encode(), "a time of the block is 'n/a'"),
        (b"hello", "no tool's output that is known; expected a log of benchmark_model"),
        (b"node type, first, avg_ms, %, cdf%\n", "an operator profile has no inference time"),
        (
            LOG[: LOG.index("INFO: Inference")].encode(),
            "a run of benchmark_model ends with 'Inference timings",
        ),
        ((LOG + LOG[: LOG.index("INFO: Inference")]).encode(), "1 whole runs and the beginning of another"),
        (LOG.replace("count=", "n=").encode(), "no line of statistics"),
        (MESSAGE[:-20].encode(), "cut off: its braces do not match"),
        (MESSAGE.replace("avg_ms", "a_ms").encode(), "expected latency_metrics { avg_ms"),
        (json.dumps(LITERT).encode()[:-30], "the JSON is damaged or cut off"),
        (b"{}", "expected the JSON of litert-benchmark"),
        (b"[1]", "expected one JSON object"),
        (b'{"latency": {"num_runs": 5}}', "no inference time"),
        (b'{"latency": {"num_runs": 5, "avg_ms": "1"}}', "avg_ms is '1', not a number"),
        (b'{"latency": {"num_runs": 5, "avg_ms": NaN}}', "a time of nan ms"),
        (b'{"latency": {"num_runs": 5, "avg_ms": -1}}', "a time of -1.0 ms"),
        (b'{"latency": {"num_runs": 5, "avg_ms": 1e300}}', "a time of 1e+300 ms"),
        (b'{"latency": {"num_runs": 0, "avg_ms": 1}}', "0 runs"),
        (b'{"execution_summary": {}}', "execution_summary has no inference time"),
        (b"Num evaluation runs: 50\nTest run latency: avg=5(us), std_dev=0(us)\n", "the list is cut off"),
        (DIFF.replace("Test run", "Run").encode(), "no line 'Test run latency: avg=...(us)'"),
        (DIFF[DIFF.index("Ref") :].encode(), "it begins with 'Num evaluation runs: 50'"),
        (TOP_K.replace("0.96", "9.6").encode(), "an accuracy that is not between 0 and 1"),
        (TABLE.replace("12.3", "fast").encode(), "row 2 of the table: 'fast' is not a time in ms"),
        (TABLE.replace("| 12.3 ", "").encode(), "row 2 of the table has 2 cells, its heading 3"),
        (b"model,status,ms\n", "the table has no rows"),
    ],
)
def test_another_file_says_in_one_line_what_was_expected(content: bytes, words: str) -> None:
    with pytest.raises(NotReadableError) as error:
        read_results(content)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


_LONG = 200_000


@pytest.mark.parametrize(
    "text",
    [
        f"Model: x{' ' * _LONG}y\nBENCHMARK RESULTS\n",
        f"BENCHMARK RESULTS\nA{'a' * _LONG}\n{' ' * _LONG}\n",
        f"Log parameter values verbosely\nLoaded model x{' ' * _LONG}y\n",
        f"Log parameter values verbosely\n{'a: ' * _LONG}count=x\n",
        f"Log parameter values verbosely\nmemory:{' ' * _LONG}count=x\n",
        f"Log parameter values verbosely\n{'Graph: [' * (_LONG // 8)}\n",
        f"{LOG.splitlines()[-3]}{' ' * _LONG}x\n",
        f"latency_metrics {{ {'a:' * _LONG} }}",
        '{"latency": ' + "[" * _LONG,
        '{"latency": {"num_runs": ' + "9" * _LONG + "}}",
        '{"latency": {"num_runs": 1, "avg_ms": ' + "9" * 400 + "}}",
        '{"latency": {"num_runs": 1, "avg_ms": 1e999}}',
        '{"execution_summary": {"all_inference_times": [1, ' + "9" * 400 + "]}}",
        '{"execution_summary": {"estimated_inference_time": 1, "estimated_inference_peak_memory": 1e999}}',
        MESSAGE.replace("num_runs: 60", "num_runs: 1e999"),
        MESSAGE.replace("peak_mem_mb: 3.5", "peak_mem_mb: 1e999"),
        LOG.replace("overall=64", f"overall={'9' * 400}"),
        f"Num evaluation runs: 5\nOutputDiff[{'9' * _LONG}\nTop-1 Accuracy: {'9' * _LONG}",
        f"model,status,ms{' ' * _LONG}\n{'|' * _LONG}",
        f"|model|status|{'ms ' * _LONG}|\n{'|-' * _LONG}",
    ],
)
def test_a_hostile_file_is_refused_at_once(text: str) -> None:
    began = time.process_time()
    with pytest.raises(NotReadableError):
        read_results(text.encode())
    assert time.process_time() - began < 2.0, "a tenth of a second; with a quadratic pattern 80 and more"
