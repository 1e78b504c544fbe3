"""The device's own computing time: by its events, in a pass of its own, or a reason why it is unknown."""

from __future__ import annotations

from time import perf_counter_ns

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter, load_delegate
from runtime.delegates.abilities import DeviceTime, NotTold
from runtime.measure.benchmark import measure, start_cold
from runtime.measure.loading import Opener, Subject
from runtime.measure.transfer import MOST_RUNS
from tests.runtime.tools.plan_models import two_partitions

SHA = "cd" * 32
PLAIN = {"tuning": "none", "persistent": "off"}


@pytest.fixture(scope="module")
def split():
    """Return an interpreter of two partitions with an operator between, on seeded inputs."""
    options = {**PLAIN, "max_delegated_partitions": 2, "cost_aware_partitioning": False}
    delegate = load_delegate("gpu", options)
    interpreter = Interpreter(model_content=two_partitions(), experimental_delegates=[delegate])
    with pytest.raises(RuntimeError, match="call allocate_tensors"):
        interpreter.device_time()
    interpreter.allocate_tensors()
    (detail,) = interpreter.get_input_details()
    values = np.random.default_rng(3).normal(size=detail["shape"]).astype(np.float32)
    interpreter.set_tensor(detail["index"], values)
    yield interpreter
    interpreter.close()


def test_a_device_computes_within_the_time_of_the_call_and_gives_the_outputs_of_an_invoke(split):
    outputs = [detail["index"] for detail in split.get_output_details()]
    split.invoke()
    expected = [split.get_tensor(index).tobytes() for index in outputs]
    started = perf_counter_ns()
    told = split.device_time()
    elapsed = perf_counter_ns() - started
    assert isinstance(told, DeviceTime)
    # The queue runs one kernel after another, so that their times cannot overlap.
    assert 0 < told.busy_ns < elapsed
    assert 0 <= told.queue_ns < elapsed
    assert [split.get_tensor(index).tobytes() for index in outputs] == expected


def test_the_pass_follows_the_timed_loop_and_is_in_no_sample(small_model, monkeypatch):
    phases, asked = [], []
    real = Interpreter.device_time
    monkeypatch.setattr(Interpreter, "device_time", lambda self: asked.append(phases[-1]) or real(self))
    opener = Opener.prepare("gpu", PLAIN)
    found = measure(Subject(opener, str(small_model), SHA), warmup_runs=4, runs=4, on_phase=phases.append)
    assert phases == ["init", "first", "warm-up", "invoke", "new inputs", "device times"]
    assert set(asked) == {"device times"}
    assert len(found.invoke_ns) == 4
    assert 1 <= len(found.device.busy_ns) == len(found.device.queue_ns) <= MOST_RUNS
    assert min(found.device.busy_ns) > 0
    assert found.device.why_not == ""
    assert start_cold(Subject(opener, str(small_model), SHA)).device.busy_ns == ()


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("cpu", "cpu computes in the calling thread: it has no queue"),
        ("litert", "litert does not tell when its device worked"),
    ],
)
def test_who_cannot_tell_says_why(small_model, kind, why):
    found = measure(Subject(Opener.prepare(kind, {}), str(small_model), SHA), warmup_runs=2, runs=2).device
    assert (found.busy_ns, found.queue_ns, found.why_not) == ((), (), why)


def test_persistent_kernels_are_not_taken_for_work_and_the_next_invoke_is_right():
    results = []
    for persistent in ("off", "on"):
        delegate = load_delegate("gpu", {**PLAIN, "cost_aware_partitioning": False, "persistent": persistent})
        interpreter = Interpreter(model_content=two_partitions(), experimental_delegates=[delegate])
        interpreter.allocate_tensors()
        (detail,) = interpreter.get_input_details()
        interpreter.set_tensor(detail["index"], np.ones(detail["shape"], np.float32))
        told = interpreter.device_time()
        # Where the device has no such kernels, each is enqueued by itself whatever the option says.
        if "persistent kernels" in delegate.describe()["schedule"]:
            assert isinstance(told, NotTold)
            assert "option persistent: off" in told.reason
        else:
            assert isinstance(told, DeviceTime)
        interpreter.invoke()
        outputs = [detail["index"] for detail in interpreter.get_output_details()]
        results.append([interpreter.get_tensor(index).tobytes() for index in outputs])
        interpreter.close()
    assert results[0] == results[1]
