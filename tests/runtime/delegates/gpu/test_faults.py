"""Faults of a device: no memory, a run that takes too long, a device that is lost. The process stays usable.

The driver's errors are raised where the delegate calls the driver; the device underneath stays real.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading

import numpy as np
import pyopencl as cl
import pytest

from delegate_farm import load_delegate
from runtime.api.interpreter import Interpreter
from runtime.delegates.gpu.backends.opencl import faults
from runtime.delegates.gpu.start import compiled
from runtime.errors import DeadlineError, DelegateError, DeviceLostError, DeviceMemoryError
from runtime.measure.loading import Opener
from runtime.model.schema import BuiltinOperator as Op
from tests.needs import REPOSITORY
from tests.runtime.models import Builder

OPTIONS = {"tuning": "none", "persistent": "off", "cost_aware_partitioning": False}
LAYERS = 20
ROWS = 64
RUNS_EACH = 100


def chain(layers: int = LAYERS) -> bytes:
    """Build sums of a dense layer's output with itself: 16 KiB of weights, and a run of many launches."""
    b, random = Builder(), np.random.default_rng(4)
    y = b.input(np.float32, (2, 64), shape_signature=(-1, 64))
    for _ in range(layers):
        x, y = y, b.tensor(np.float32, (2, 64))
        weights = b.constant(random.standard_normal((64, 64)).astype(np.float32) / 8)
        b.operator(Op.FULLY_CONNECTED, [x, weights, -1], [y])
    return b.write([y])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def opened(folder):
    """Return a function that opens the chain on the delegate."""

    def open_model(**options):
        delegate = load_delegate("gpu", {**OPTIONS, "cache_dir": folder, **options})
        model = Interpreter(model_content=chain(), experimental_delegates=[delegate])
        model.allocate_tensors()
        return model

    return open_model


@pytest.fixture(autouse=True)
def nothing_lost():
    yield
    faults._lost.clear()


def given(rows: int = 2, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, 64)).astype(np.float32)


def run(model, value):
    model.set_tensor(0, value)
    model.invoke()
    return model.get_tensor(model.get_output_details()[0]["index"])


def right(model, value):
    reference = Interpreter(model_content=chain())
    reference.resize_tensor_input(0, value.shape)
    reference.allocate_tensors()
    np.testing.assert_allclose(run(model, value), run(reference, value), rtol=1e-4, atol=1e-4)


def raising(monkeypatch, name, code, text):
    """Let the driver answer every call of this function with an error."""
    record = type(_any_error().args[0])(msg=text, code=code, routine=name)
    kind = cl.MemoryError if code in (-4, -5, -6) else cl.RuntimeError

    def failing(*_, **__):
        raise kind(record)

    monkeypatch.setattr(cl, name, failing)


def _any_error() -> cl.Error:
    with pytest.raises(cl.Error) as caught:
        cl.Buffer(cl.Context(cl.get_platforms()[0].get_devices()[:1]), cl.mem_flags.READ_WRITE, 0)
    return caught.value


NEEDS = r"the partition needs \d\.\d MiB, of that 0\.3 MiB for constants, and .+ has \d+\.\d MiB for all pro"


def test_a_device_without_memory_at_load_says_how_much_was_needed_of_how_much(opened, monkeypatch):
    raising(monkeypatch, "Buffer", -4, "MEM_OBJECT_ALLOCATION_FAILURE")
    model = opened()
    assert model.delegation.status == "none"
    (failure,) = model.delegation.failures
    for said in ("allocating memory on ", "the device has no memory left (", "or choose a smaller input"):
        assert said in failure.reason
    assert "MEM_OBJECT_ALLOCATION_FAILURE" in failure.reason
    assert re.search(NEEDS, failure.reason)
    right(model, given())
    monkeypatch.undo()
    again = opened()
    assert again.delegation.status == "full"
    right(again, given())


def test_a_device_without_memory_for_a_resized_input_leaves_the_model_usable(opened, monkeypatch):
    model = opened()
    right(model, given())
    with monkeypatch.context() as patch:
        raising(patch, "Buffer", -4, "MEM_OBJECT_ALLOCATION_FAILURE")
        model.resize_tensor_input(0, (7, 64))
        model.allocate_tensors()
        assert "the device has no memory left" in model.delegation.failures[-1].reason
        right(model, given(7))
    model.resize_tensor_input(0, (3, 64))
    model.allocate_tensors()
    assert model.delegation.status == "full"
    right(model, given(3))


def test_memory_that_a_driver_lacks_at_invoke_is_an_error_after_which_the_model_runs(opened, monkeypatch):
    model = opened()
    right(model, given())
    with monkeypatch.context() as patch:
        raising(patch, "enqueue_nd_range_kernel", -4, "MEM_OBJECT_ALLOCATION_FAILURE")
        with pytest.raises(DeviceMemoryError, match="running the partition on .*; " + NEEDS) as caught:
            run(model, given())
    assert "\n" not in str(caught.value)
    right(model, given(seed=6))


def test_a_lost_device_is_named_and_marked_and_another_process_goes_on(opened, monkeypatch, folder):
    model, other = opened(), opened()
    with monkeypatch.context() as patch:
        raising(patch, "enqueue_nd_range_kernel", -2, "DEVICE_NOT_AVAILABLE")
        with pytest.raises(DeviceLostError, match=r"running the .*: the device is lost \(.*NOT_AVAIL"):
            run(model, given())
    for use in (lambda: run(model, given()), lambda: run(other, given()), opened):
        with pytest.raises(DeviceLostError, match=r"lost in this process \(running .*start a new process"):
            use()
    model.close()
    other.close()
    script = (
        "import numpy as np\nfrom tests.runtime.delegates.gpu import test_faults as t\n"
        "from delegate_farm import load_delegate\nfrom runtime.api.interpreter import Interpreter\n"
        f"delegate = load_delegate('gpu', {{**t.OPTIONS, 'cache_dir': {folder!r}}})\n"
        "model = Interpreter(model_content=t.chain(), experimental_delegates=[delegate])\n"
        "model.allocate_tensors()\nt.right(model, t.given())\nprint(model.delegation.status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "full\n", done.stderr


def test_a_device_that_fails_a_run_and_the_smallest_transfer_is_lost(opened, monkeypatch):
    model = opened()
    with monkeypatch.context() as patch:
        raising(patch, "enqueue_nd_range_kernel", -5, "OUT_OF_RESOURCES")
        with pytest.raises(Exception, match="OUT_OF_RESOURCES") as caught:
            run(model, given())
    assert not isinstance(caught.value, DeviceLostError), "the device still answers"
    right(model, given())
    with monkeypatch.context() as patch:
        raising(patch, "enqueue_nd_range_kernel", -5, "OUT_OF_RESOURCES")
        raising(patch, "enqueue_fill_buffer", -36, "INVALID_COMMAND_QUEUE")
        with pytest.raises(DeviceLostError, match="the device is lost"):
            run(model, given())


def test_a_device_lost_while_a_model_is_opened_gives_no_result_of_the_cpu(folder, monkeypatch, tmp_path):
    (tmp_path / "m").write_bytes(chain())
    opener = Opener.prepare("gpu", {**OPTIONS, "cache_dir": folder})
    raising(monkeypatch, "Buffer", -2, "DEVICE_NOT_AVAILABLE")
    with pytest.raises(DeviceLostError, match=r"allocating memory on .*: the device is lost"):
        opener.open(str(tmp_path / "m"))


def test_a_run_that_exceeds_its_deadline_ends_and_the_next_one_is_right(opened, monkeypatch):
    model = opened(deadline_ms=100_000)
    # Layers of fewer rows are small enough to be one enqueue.
    model.resize_tensor_input(0, (ROWS, 64))
    model.allocate_tensors()
    right(model, given(ROWS))
    times = iter([0.0, 50.0, 120.0])
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "perf_counter", lambda: next(times))
        with pytest.raises(DeadlineError, match=r"took 120000\.0 ms by layer 16 of \d+, more than dead"):
            run(model, given(ROWS))
    right(model, given(ROWS, seed=6))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"deadline_ms": 0}, "whole number of at least 1"),
        ({"deadline_ms": 5, "wait_type": "do_not_wait"}, "leave out one of the two"),
    ],
)
def test_a_deadline_that_cannot_be_kept_is_refused(options, said):
    with pytest.raises(DelegateError, match=said):
        load_delegate("gpu", options)


def test_two_threads_on_one_graph_get_their_own_results(folder):
    delegate = load_delegate("gpu", {**OPTIONS, "cache_dir": folder})
    model = Interpreter(model_content=chain(), experimental_delegates=[delegate])
    model.allocate_tensors()
    (graph,) = delegate._open_graphs()
    values = [given(seed=seed) for seed in (11, 12)]
    expected = [run(model, value) for value in values]
    wrong, begin = [], threading.Barrier(2)

    def work(value, wanted):
        target = np.empty_like(wanted)
        begin.wait()
        for _ in range(RUNS_EACH):
            graph.invoke([value], [target])
            wrong.extend([] if np.array_equal(target, wanted) else [target.copy()])

    threads = [threading.Thread(target=work, args=pair) for pair in zip(values, expected, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_is_between_the_program_and_the_driver_is_reported(monkeypatch, opened):
    monkeypatch.setenv("OPENCL_LAYERS", "/opt/trace.so")
    monkeypatch.setenv("POCL_DEBUG", "0")
    described = load_delegate("gpu", {"cache_dir": ""}).describe()
    assert described["in_the_way"] == "OPENCL_LAYERS=/opt/trace.so"
    monkeypatch.delenv("OPENCL_LAYERS")
    assert "in_the_way" not in load_delegate("gpu", {"cache_dir": ""}).describe()
