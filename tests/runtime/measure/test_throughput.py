"""Runs in flight: how many at once, in which order, all counted, and told from runs alone."""

from __future__ import annotations

import gc
import re
from types import SimpleNamespace

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter, load_delegate
from runtime.measure.in_flight import keep_in_flight
from runtime.measure.loading import Opener, Subject
from runtime.measure.throughput import throughput
from tests.runtime.delegates.gpu.caller_models import EXPECTED, X, dense
from tests.runtime.tools.plan_models import two_partitions

SHA = "cd" * 32
PLAIN = {"tuning": "none", "persistent": "off"}
WARM_UP = 8
"""Runs that a pass makes before those that count: twice the input sets, or twice those in flight."""


class Clock:
    """Counts 0.1 s at each look."""

    def __init__(self):
        self.now_ns = 0

    def __call__(self):
        self.now_ns += 100_000_000
        return self.now_ns


class Device:
    """A model `y = 2 x` whose runs are started; it notes how many are in flight."""

    def __init__(self, wrong_from=None):
        self.flying, self.most, self.started, self.wrong_from = 0, 0, 0, wrong_from

    def get_input_details(self):
        return [{"index": 0, "name": "x", "shape": [3], "dtype": np.float32, "quantization": (0.0, 0)}]

    def get_output_details(self):
        return [{"index": 1, "name": "y", "quantization": (0.0, 0)}]

    def set_tensor(self, index, value):
        self.x = value

    def invoke(self):
        pass

    def get_tensor(self, index):
        return 2 * self.x

    def run_slots(self, count):
        return [Slot(self) for _ in range(count)]


class Slot:
    def __init__(self, device):
        self.device = device

    def start(self, values):
        self.value = 2 * values[0]
        if self.device.wrong_from is not None and self.device.started >= self.device.wrong_from:
            self.value.flat[1] += 1
        self.device.started += 1
        self.device.flying += 1
        self.device.most = max(self.device.most, self.device.flying)

    def finish(self):
        self.device.flying -= 1
        return (self.value,)


class Unsteady(Device):
    """A run alone gives a little more each time."""

    def get_tensor(self, index):
        self.times = getattr(self, "times", 0) + 1
        return (2 * self.x * (1 + 1e-6 * self.times)).astype(np.float32)


def opener(device):
    opened = SimpleNamespace(model=device, kind="test", delegate=object(), describe=dict)
    return SimpleNamespace(open=lambda path, rules: opened)


def test_so_many_are_in_flight_and_each_is_waited_for_in_turn():
    device, ended = Device(), []
    slots = device.run_slots(3)

    def inputs(number):
        return (np.full(3, number % 4, np.float32),)

    def note(number, outputs):
        assert device.flying == 2 or len(ended) >= 4, "the oldest ends before the next one starts"
        ended.append((number, float(outputs[0][0])))

    assert keep_in_flight(slots, inputs, lambda started: started < 7, note) == 7
    assert ended == [(number, 2.0 * (number % 4)) for number in range(7)], "in order, each with its inputs"
    assert (device.most, device.flying) == (3, 0)
    assert keep_in_flight(slots, inputs, lambda started: started < 2, lambda *_: None) == 2, (
        "fewer than slots"
    )


def test_every_run_that_was_started_is_counted_over_the_wall_time():
    device = Device()
    found = throughput(Subject(opener(device), "m.tflite", SHA), 4, 2.0, clock=Clock())
    # The clock is looked at first, before each start from the fifth on, and last.
    assert (found.runs, found.wall_ns, found.why_not) == (4 + 19, 2_100_000_000, "")
    assert (device.most, device.flying) == (4, 0)
    assert device.started == WARM_UP + found.runs
    assert gc.isenabled()


def test_a_model_slower_than_the_pass_ends_what_is_in_flight():
    found = throughput(Subject(opener(Device()), "m.tflite", SHA), 8, 0.1, clock=Clock())
    assert (found.runs, found.wall_ns) == (8, 200_000_000)


@pytest.mark.parametrize("wrong_from", [0, WARM_UP + 6])
def test_an_output_unlike_that_of_a_run_alone_strikes_the_throughput_out(wrong_from):
    found = throughput(Subject(opener(Device(wrong_from)), "m.tflite", SHA), 2, 1.0, clock=Clock())
    assert (found.runs, found.wall_ns) == (0, 0)
    assert found.why_not.startswith("with 2 runs in flight, unlike a run alone: output 'y' of input set ")
    assert found.why_not.endswith(": 1 of 3 values differ, largest by 1")


def test_runs_alone_that_differ_already_are_told_by_a_tolerance(small_model):
    found = throughput(Subject(opener(Unsteady()), str(small_model), SHA), 2, 1.0, clock=Clock())
    assert found.runs > 0, found.why_not
    wrong = throughput(Subject(opener(Unsteady(wrong_from=0)), str(small_model), SHA), 2, 1.0, clock=Clock())
    assert "unlike a run alone: output 'y' of input set 0: root mean square of y-r: " in wrong.why_not


def test_what_cannot_be_started_says_so_and_one_at_a_time_is_for_all(small_model):
    cpu = Opener.prepare("cpu", {})
    several = throughput(Subject(cpu, str(small_model), SHA), 2, 1.0, clock=Clock())
    assert several.why_not == ("cpu has no asynchronous runs; in_flight: 1 measures runs one after another")
    one = throughput(Subject(cpu, str(small_model), SHA), 1, 1.0, clock=Clock())
    assert (one.runs, one.wall_ns, one.why_not) == (1 + 9, 1_100_000_000, "")


def test_a_device_runs_several_at_once_and_each_has_its_own_inputs():
    interpreter = Interpreter(model_content=dense(), experimental_delegates=[load_delegate("gpu", PLAIN)])
    interpreter.allocate_tensors()
    slots = interpreter.run_slots(3)
    for factor, slot in enumerate(slots):
        slot.start([X * factor])
    found = [slot.finish() for slot in slots]
    assert not found[0][0].any()
    np.testing.assert_allclose(found[1][0], EXPECTED, rtol=1e-5, atol=1e-6)
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], X * 2)
    interpreter.invoke()
    alone = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    assert found[2][0].tobytes() == alone.tobytes()
    interpreter.close()


def test_a_device_keeps_a_file_in_flight(small_model):
    found = throughput(Subject(Opener.prepare("gpu", PLAIN), str(small_model), SHA), 4, 1.0, clock=Clock())
    assert (found.runs, found.why_not) == (4 + 9, "")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"max_delegated_partitions": 2, "cost_aware_partitioning": False},
            r"its delegate runs \d+ of \d+ operators, and starts only models that it runs whole",
        ),
        (
            {"deadline_ms": 60_000},
            "its delegate starts no run of this model, with these options, without waiting",
        ),
    ],
)
def test_a_model_that_is_not_started_on_a_device_says_why(options, why, tmp_path):
    path = tmp_path / "m.tflite"
    path.write_bytes(dense() if "deadline_ms" in options else two_partitions())
    found = throughput(
        Subject(Opener.prepare("gpu", {**PLAIN, **options}), str(path), SHA), 2, 1.0, clock=Clock()
    )
    assert re.fullmatch(f"gpu: {why}; in_flight: 1 measures runs one after another", found.why_not)
