"""The `litert-gpu` delegate: LiteRT runs in processes of their own, as it may abort them.

With a driver of Vulkan that LiteRT accepts, as Mesa's lavapipe 25.0.7 is, whose file `FILE.json` is:
`FARM_TEST_VULKAN=FILE.json pytest -m exhaustive tests/runtime/delegates/peers/test_litert_gpu.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from runtime.delegates.peers.litert_gpu import DESCRIPTOR, SWITCHES
from runtime.delegates.peers.litert_words import adapter_of, failure, found_no_gpu, problems, report_of
from runtime.errors import DelegateError
from tests.end_to_end.odd_models import partial_model
from tests.needs import REPOSITORY
from tests.runtime.delegates.peers.small_models import conv_model

SCRIPT = """
import json, sys
import numpy as np
from runtime.delegates.registry import load_delegate
from runtime.api.interpreter import Interpreter
path, options = sys.argv[1], json.loads(sys.argv[2])
try:
    delegate = load_delegate("litert-gpu", options)
    model = delegate.load(path)
except Exception as error:
    status = getattr(getattr(error, "delegation", None), "status", None)
    print(json.dumps({"error": type(error).__name__, "text": str(error), "delegation": status}))
    raise SystemExit
ours = Interpreter(model_path=path)
ours.allocate_tensors()
found = []
for one in (model, ours):
    (given,), (made,) = one.get_input_details(), one.get_output_details()
    value = np.random.default_rng(8).standard_normal(given["shape"]).astype(np.float32)
    one.set_tensor(given["index"], value)
    one.invoke()
    found.append(one.get_tensor(made["index"]))
report = model.delegation
print(json.dumps({
    "off": float(np.linalg.norm(found[0] - found[1]) / np.linalg.norm(found[1])),
    "delegation": [report.status, report.delegated_ops, report.total_ops],
    "fallbacks": [[f.index, f.op, f.reason] for f in report.fallbacks],
    "describe": dict(delegate.describe()),
}))
"""

# What LiteRT 2.3.0 said of a model of four operators, shortened.
PARTIAL = """\
INFO: [delegate_webgpu.cc:342] Create WebGPU environment (use_low_power=0, enable_host_mapped_pointer=1)
I0000 00:00:1795352366.972491   32260 environment.cc:532] Selected adapter: llvmpipe (LLVM 15), backend=Vulkan
ERROR: Following operations are not supported by GPU delegate:
REVERSE_SEQUENCE: Operation is not supported.
2 operations will run on the GPU, and the remaining 2 operations will run on the CPU.
I0000 00:00:1795352438.203263    1047 delegate_kernel.cc:984] Initializing WebGPU-based API from graph.
"""
NO_GPU = """\
INFO: [delegate_webgpu.cc:342] Create WebGPU environment (use_low_power=0, enable_host_mapped_pointer=1)
Warning: maxDynamicUniformBuffersPerPipelineLayout artificially reduced from 1000000 to 16 to fit.
Warning: Vulkan shaderUniform*ArrayDynamicIndexing required.
ERROR: [delegate_webgpu.cc:359] Failed to initialize WebGPU environment: INTERNAL: No adapters found
"""


def process(path, options=None, **environment):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path), json.dumps(options or {})],
        env=os.environ | environment,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.fixture
def conv_file(tmp_path):
    (tmp_path / "conv").write_bytes(conv_model())
    return tmp_path / "conv"


def test_without_a_gpu_litert_s_own_words_say_so_and_the_process_lives(conv_file):
    found, log = process(conv_file, VK_DRIVER_FILES="/nonexistent", VK_ICD_FILENAMES="/nonexistent")
    assert found["error"] == "NoDeviceError"
    assert found["text"].startswith("litert-gpu: LiteRT finds no GPU that it can use: ")
    assert "No adapters found" in found["text"]
    assert "\n" not in found["text"]
    assert "No adapters found" in log, "what LiteRT said is in the log, too"


def test_litert_s_report_is_read(tmp_path):
    path = tmp_path / "partial"
    path.write_bytes(partial_model())
    report = report_of(PARTIAL, str(path))
    assert (report.status, report.delegated_ops, report.total_ops) == ("partial", 2, 4)
    assert [(f.index, f.op, f.reason) for f in report.fallbacks] == [
        (2, "REVERSE_SEQUENCE", "Operation is not supported.")
    ]
    assert adapter_of(PARTIAL) == "llvmpipe (LLVM 15), backend=Vulkan"
    none = PARTIAL.replace(
        "2 operations will run on the GPU, and the remaining 2",
        "No operations will run on the GPU, and all 4",
    )
    assert (report_of(none, str(path)).status, report_of(none, str(path)).total_ops) == ("none", 4)
    assert report_of(NO_GPU, str(path)) is None


def test_litert_s_reasons_are_read():
    error = (
        "ERROR: [./litert/cc/litert_compiled_model.h:1961]\n└ ERROR: [litert/runtime/compiled_model.cc:1036]"
    )
    assert problems(NO_GPU, error) == [
        "Vulkan shaderUniform*ArrayDynamicIndexing required.",
        "Failed to initialize WebGPU environment: INTERNAL: No adapters found",
    ]
    assert found_no_gpu(NO_GPU)
    assert not found_no_gpu(PARTIAL)
    assert problems("", f"{error}\n└ Some ops are not accelerated.") == ["Some ops are not accelerated."]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("Variable tensors not yet supported.", "UnsupportedOperatorError"),
        ("CONV_3D: Operation is not supported.", "UnsupportedOperatorError"),
        ("Failed to create a buffer", "DelegateError"),
    ],
)
def test_what_litert_lacks_for_a_model_is_no_fault(words, kind):
    error = failure("litert-gpu: LiteRT", words, DelegateError)
    assert (type(error).__name__, str(error)) == (kind, f"litert-gpu: LiteRT: {words}")


def test_opencl_devices_that_are_a_cpu_are_refused():
    pocl = SimpleNamespace(kind="cpu", api="opencl", name="pocl", vendor="", facts={})
    assert "does not use OpenCL devices of a CPU" in DESCRIPTOR.hosts(pocl)
    assert DESCRIPTOR.hosts(SimpleNamespace(kind="gpu", api="opencl", name="g", vendor="", facts={})) is None


@pytest.fixture
def vulkan():
    """Return the file of a driver that LiteRT accepts."""
    named = os.environ.get("FARM_TEST_VULKAN") or pytest.skip("no driver of Vulkan: set FARM_TEST_VULKAN")
    return {"VK_DRIVER_FILES": named}


@pytest.mark.exhaustive
@pytest.mark.parametrize(("precision", "least", "most"), [("fp32", 0, 1e-5), ("fp16", 1e-5, 2e-2)])
def test_a_whole_model_runs_on_its_gpu_in_the_precision_asked_for(conv_file, vulkan, precision, least, most):
    found, _ = process(conv_file, {"precision": precision}, **vulkan)
    assert found["delegation"] == ["full", 2, 2]
    assert least < found["off"] < most
    assert "backend=Vulkan" in found["describe"]["adapter"]
    assert found["describe"]["precision"] == precision


@pytest.mark.exhaustive
def test_switches_of_litert_s_gpu_are_taken_and_told(conv_file, vulkan):
    found, _ = process(conv_file, dict.fromkeys(SWITCHES, True), **vulkan)
    assert found["delegation"] == ["full", 2, 2]
    assert found["describe"].items() >= dict.fromkeys(SWITCHES, "yes").items()
    assert found["off"] < 1e-5


@pytest.mark.exhaustive
def test_a_part_of_a_model_runs_on_its_gpu_and_the_report_says_which(tmp_path, vulkan):
    path = tmp_path / "partial"
    path.write_bytes(partial_model())
    found, _ = process(path, **vulkan)
    assert found["delegation"] == ["partial", 2, 4]
    assert found["fallbacks"] == [[2, "REVERSE_SEQUENCE", "Operation is not supported."]]
    assert found["off"] < 1e-5
    refused, _ = process(path, {"require_full_delegation": True}, **vulkan)
    assert (refused["error"], refused["delegation"]) == ("FallbackForbiddenError", "partial")
