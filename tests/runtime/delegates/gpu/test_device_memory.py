"""A partition that the device cannot hold runs on the CPU, and the report says what it needs of how much."""

import re
from dataclasses import replace

import numpy as np
import pytest

from delegate_farm import load_delegate
from runtime.api.interpreter import Interpreter
from runtime.delegates.gpu.backends.opencl import backend as opencl_backend
from runtime.delegates.gpu.backends.opencl import device
from runtime.errors import DelegateError
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import Padding
from tests.runtime.models import Builder

OPTIONS = {"persistent": "off", "cache_dir": ""}

MIB = 1 << 20


@pytest.fixture
def limited(monkeypatch):
    """Return a function that makes the device smaller."""
    intact = device.capabilities

    def limit(**sizes):
        monkeypatch.setattr(device, "capabilities", lambda found: replace(intact(found), **sizes))

    return limit


def dense(rows=1024):
    """1 MiB of weights; at 1024 rows 2 MiB of input and as much of output."""
    b = Builder()
    x, y = b.input(np.float32, (rows, 512)), b.tensor(np.float32)
    b.operator(Op.FULLY_CONNECTED, [x, b.constant(np.eye(512, dtype=np.float32)), -1], [y])
    return b.write([y])


def outputs(model, **options):
    delegate = load_delegate("gpu", {**OPTIONS, "tuning": "none", **options})
    interpreter = Interpreter(model_content=model, experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    x = np.random.default_rng(1).standard_normal(interpreter.get_input_details()[0]["shape"])
    interpreter.set_tensor(0, x.astype(np.float32))
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    np.testing.assert_allclose(found, x, rtol=1e-5, atol=1e-5)
    return interpreter.delegation


def refuse_to_compile(monkeypatch):
    def compiled(*_):
        raise AssertionError("nothing is compiled for a partition that has no room")

    monkeypatch.setattr(opencl_backend.OpenClBackend, "compile", compiled)


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        (
            {"max_allocation_bytes": 3 * MIB},
            r"the activations need 4\.\d MiB in one buffer, of which .+ gives 3\.0 MiB",
        ),
        (
            {"max_allocation_bytes": MIB // 2},
            r"the activations need 4\.\d MiB in one buffer, of which .+ gives 0\.5 MiB",
        ),
        (
            {"memory_bytes": 4 * MIB + MIB // 2},
            r"the partition needs 5\.\d MiB, of that 1\.\d MiB for constants, and .+ has 4\.5 MiB",
        ),
    ],
)
def test_what_has_no_room_runs_on_the_cpu_with_the_reason(sizes, reason, limited, monkeypatch):
    limited(**sizes)
    refuse_to_compile(monkeypatch)
    report = outputs(dense())
    assert report.status == "none"
    (fallback,) = report.fallbacks
    (failure,) = report.failures
    assert failure.reason in fallback.reason
    assert "\n" not in fallback.reason
    assert re.search(reason + "; choose a device with more memory, or a smaller input", fallback.reason)
    monkeypatch.undo()
    assert outputs(dense(4)).status == "full", "the process stays usable"


def test_constants_of_one_layer_have_a_limit_too(limited):
    limited(max_allocation_bytes=MIB // 2)
    (fallback,) = outputs(dense(4)).fallbacks
    assert "the constants of one layer need 1.0 MiB in one buffer, of which" in fallback.reason


def deep():
    """Five layers of 256 KiB of weights."""
    b, random = Builder(), np.random.default_rng(2)
    y = b.input(np.float32, (2, 256))
    weights = [b.constant(random.standard_normal((256, 256)).astype(np.float32) / 16) for _ in range(5)]
    for constant in weights:
        x, y = y, b.tensor(np.float32, (2, 256))
        b.operator(Op.FULLY_CONNECTED, [x, constant, -1], [y])
    return b.write([y])


@pytest.mark.parametrize(
    ("kind", "persistent"), [("cpu", "off"), ("cpu", "on"), ("cpu", "auto"), ("gpu", "off")]
)
def test_constants_lie_in_as_many_buffers_as_the_largest_allocation_asks_for(
    kind, persistent, limited, monkeypatch
):
    if kind == "gpu":
        monkeypatch.setattr(device, "is_gpu", lambda found: True)
    limited(max_allocation_bytes=600 << 10)
    delegate = load_delegate("gpu", {"cache_dir": "", "tuning": "none", "persistent": persistent})
    found = []
    for delegates in ([], [delegate]):
        interpreter = Interpreter(model_content=deep(), experimental_delegates=delegates)
        interpreter.allocate_tensors()
        interpreter.set_tensor(0, np.random.default_rng(3).standard_normal((2, 256)).astype(np.float32))
        interpreter.invoke()
        found.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
    assert interpreter.delegation.status == "full"
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-4)
    assert int(delegate.describe()["constant_bytes"]) > 2 * (600 << 10), "more than two buffers hold"


def test_a_smaller_input_has_room(limited):
    limited(memory_bytes=4 * MIB + MIB // 2)
    assert outputs(dense(512)).status == "full"


def test_where_full_delegation_is_required_it_is_an_error(limited):
    limited(memory_bytes=MIB)
    with pytest.raises(DelegateError, match=r"Disallowed CPU fallback(.|\n)*and .+ has 1\.0 MiB"):
        outputs(dense(), require_full_delegation=True)


def test_candidates_that_have_no_room_beside_each_other_are_not_timed(limited):
    """Two ways of a convolution need 5.1 MiB together, and the default one alone 3.1."""
    limited(memory_bytes=4 * MIB)
    b = Builder()
    x, y = b.input(np.float32, (1, 16, 16, 128)), b.tensor(np.float32)
    weights = np.zeros((128, 3, 3, 128), np.float32)
    weights[range(128), 1, 1, range(128)] = 1
    options = {"padding": Padding.SAME, "stride_w": 1, "stride_h": 1}
    options |= {"dilation_w_factor": 1, "dilation_h_factor": 1}
    b.operator(Op.CONV_2D, [x, b.constant(weights), b.constant(np.zeros(128, np.float32))], [y], options)
    assert outputs(b.write([y]), tuning="exhaustive").status == "full"
