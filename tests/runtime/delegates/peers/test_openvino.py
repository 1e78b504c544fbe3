"""The `openvino` delegate with the real package."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.delegates.registry import load_delegate
from runtime.errors import (
    DelegateError,
    ModelFormatError,
    UnsupportedOperatorError,
    UnsupportedPrecisionError,
)
from tests.end_to_end.odd_models import lacking_operator_model
from tests.needs import REPOSITORY, absent
from tests.runtime.delegates.peers.small_models import conv_model, image

TOLERANCE = {"fp32": 1e-4, "bf16": 2e-2}


@pytest.fixture(scope="module", autouse=True)
def package():
    """Skip the file where OpenVINO is not installed."""
    from runtime.delegates.peers.openvino import openvino_version

    if openvino_version() is None:
        absent("openvino is not installed: pip install 'openvino>=2026.4'")


@pytest.fixture
def model_file(tmp_path):
    """Write a file named as the store of the farm names its files, without a suffix."""
    path = tmp_path / "0123abcd"
    path.write_bytes(conv_model())
    return str(path)


def run(model, value):
    (given,), (made,) = model.get_input_details(), model.get_output_details()
    model.set_tensor(given["index"], value)
    model.invoke()
    return model.get_tensor(made["index"])


def expected(path, value):
    model = Interpreter(model_path=path)
    model.resize_tensor_input(0, value.shape)
    model.allocate_tensors()
    return run(model, value)


def distance(found, wanted):
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    return np.linalg.norm(found - wanted) / np.linalg.norm(wanted)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_precision_is_computed_in_and_reported_or_refused(model_file, precision):
    # Not by an import of its own, which would report itself.
    able = load_delegate("openvino", {})._core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if precision == "bf16" and "BF16" not in able:
        with pytest.raises(
            UnsupportedPrecisionError, match=r"does not compute in bf16 on this CPU.*use fp32"
        ):
            load_delegate("openvino", {"precision": precision})
        return
    delegate = load_delegate("openvino", {"precision": precision, "threads": 1})
    model = delegate.load(model_file)
    off = distance(run(model, image()), expected(model_file, image()))
    assert off < TOLERANCE[precision]
    described = delegate.describe()
    assert described["precision"] == precision
    assert described["threads"] == "1"
    assert ("bf16" in described["nodes"]) == (precision == "bf16")
    # The proof that bf16 is not a mere word: float32 cannot be so far off.
    assert (off > 1e-5) == (precision == "bf16")


def test_all_operators_are_its_own_and_the_version_is_told(model_file):
    delegate = load_delegate("openvino", {})
    report = delegate.load(model_file).delegation
    assert (report.status, report.delegated_ops, report.total_ops, report.fallbacks) == ("full", 2, 2, ())
    assert delegate.describe()["openvino"][0].isdecimal()


def test_an_input_is_resized_and_outputs_are_copies(model_file):
    model = load_delegate("openvino", {}).load(model_file)
    (given,), (made,) = model.get_input_details(), model.get_output_details()
    assert (given["name"], made["name"]) == ("image", "sum")
    small = run(model, image())
    kept = small.copy()
    model.resize_tensor_input(given["index"], (1, 5, 9, 16))
    model.allocate_tensors()
    large = run(model, image(5, 9))
    assert distance(large, expected(model_file, image(5, 9))) < TOLERANCE["fp32"]
    assert tuple(model.get_output_details()[0]["shape"]) == (1, 5, 9, 16)
    np.testing.assert_array_equal(small, kept)


def test_a_wrong_input_is_named(model_file):
    model = load_delegate("openvino", {}).load(model_file)
    with pytest.raises(ValueError, match=r"input 0 is float32\[1, 8, 8, 16\], got float64\[1, 8, 8, 16\]"):
        model.set_tensor(0, image().astype(np.float64))
    with pytest.raises(ValueError, match="tensor 3 is not an input"):
        model.set_tensor(3, image())


def test_what_its_frontend_lacks_is_said_in_its_words(tmp_path):
    path = tmp_path / "lacking"
    path.write_bytes(lacking_operator_model())
    with pytest.raises(UnsupportedOperatorError, match=r"^openvino: \S.+") as caught:
        load_delegate("openvino", {}).load(str(path))
    assert "\n" not in str(caught.value)
    assert "Exception from src" not in str(caught.value)


def test_a_broken_file_is_no_fault_of_openvino(tmp_path):
    (tmp_path / "broken").write_bytes(b"\0" * 64)
    with pytest.raises(ModelFormatError, match="identifier is"):
        load_delegate("openvino", {}).load(str(tmp_path / "broken"))


@pytest.mark.parametrize("options", [{"precision": "fp16"}, {"thread": 1}, {"threads": 0}])
def test_wrong_options_are_refused(options):
    with pytest.raises(DelegateError, match=r"^openvino: "):
        load_delegate("openvino", options)


def test_openvino_reports_its_use_to_nobody(tmp_path):
    script = (
        "import sys\nfrom runtime.delegates.registry import load_delegate\nload_delegate('openvino', {})\n"
        "print([m for m in sys.modules if m.startswith('openvino_telemetry')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"HOME": str(tmp_path)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "[]", done.stderr
    assert list(tmp_path.iterdir()) == []
