"""A pipeline: what overlaps, what is counted, and that it gives what runs alone give."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest

from runtime.measure.accuracy.pictures import Normalisation, PictureInput
from runtime.measure.loading import Opener, Subject
from runtime.measure.pipeline import FRAME, Frames, pipeline
from tests.runtime.measure.test_throughput import PLAIN, SHA, Clock, Device, Slot, opener

PAIRS = 1
"""Stretches of each way that count, where the first ones take longer than all seconds that are asked for."""
SERIAL, OVERLAPPED = 4 + 1, 4 + 2
"""Frames of a stretch that takes no longer than its fewest."""


class Camera(Device):
    """A model `y = 2 x` of a picture of 2 x 3 pixels; it keeps what it was given, and by which way."""

    def __init__(self, wrong_from=None):
        super().__init__(wrong_from)
        self.given = []

    def get_input_details(self):
        return [{"index": 0, "name": "x", "shape": [1, 2, 3, 3], "dtype": np.float32, "quantization": (0, 0)}]

    def set_tensor(self, index, value):
        super().set_tensor(index, value)
        self.given.append(("alone", value))

    def run_slots(self, count):
        return [Lens(self) for _ in range(count)]


class Lens(Slot):
    def start(self, values):
        self.device.given.append((f"beside {self.device.flying}", values[0]))
        super().start(values)


def spent(device, cpu_ms=0.01, seconds=0.1):
    return pipeline(Subject(opener(device), "m.tflite", SHA), cpu_ms, seconds, clock=Clock())


def test_a_frame_is_prepared_while_the_one_before_runs_and_each_is_counted_between_ends():
    device = Camera()
    found = spent(device)
    assert found.why_not == ""
    # Without the first and the last frames of a stretch, which are not beside others. Of each further frame
    # the clock is looked at before its pre-processing, behind it, and at the end of a run.
    assert (found.serial.count, found.overlapped.count) == (PAIRS * (SERIAL - 2), PAIRS * (OVERLAPPED - 3))
    assert found.serial.wall_ns == 300_000_000 * found.serial.count
    assert found.serial.preprocess_ns == 100_000_000 * found.serial.count
    assert found.overlapped.wall_ns == 300_000_000 * found.overlapped.count
    ways = [way for way, _ in device.given if way != "alone"]
    assert ways == ["beside 0", *["beside 1"] * (OVERLAPPED - 1)] * (1 + PAIRS)
    assert (device.most, device.flying) == (2, 0)


def test_both_ways_take_turns_for_the_seconds_that_are_asked_for():
    device = Camera()
    found = spent(device, seconds=32.0)
    # 2 s of each stretch, in which the clock is looked at four times a frame.
    pairs = 7  # an eighth would begin behind the 32 s: each takes a frame longer
    assert found.serial.count / pairs == pytest.approx(4, abs=2)
    assert found.overlapped.count / pairs == pytest.approx(4, abs=2)
    ways = [way == "alone" for way, _ in device.given]
    turns = sum(one != other for one, other in pairwise(ways))
    assert turns == 1 + (1 + pairs), "behind what runs alone give, each turn begins as the last one ended"


def test_a_picture_is_resized_as_litert_s_tools_do():
    device = Camera()
    found = pipeline(Subject(opener(device), "m.tflite", SHA), None, 0.1, clock=Clock())
    assert found.overlapped.count == PAIRS * (OVERLAPPED - 3)
    values = {value.tobytes() for _, value in device.given}
    assert len(values) == 4, "the frames differ"
    assert {value.shape for _, value in device.given} == {(1, 2, 3, 3)}
    white = np.full((*FRAME, 3), 255, np.uint8)
    picture = PictureInput.of(device.get_input_details())
    np.testing.assert_array_equal(picture.value(white, Normalisation()), 1.0)
    assert max(np.abs(value).max() for _, value in device.given) <= 1.0


def test_a_frame_takes_so_much_of_a_processor():
    began = time.thread_time_ns()
    found = spent(Camera(), cpu_ms=2.0)
    frames = (1 + PAIRS) * (SERIAL + OVERLAPPED)
    assert time.thread_time_ns() - began >= 2_000_000 * frames
    assert found.why_not == ""


@pytest.mark.parametrize("wrong_from", [0, (1 + PAIRS) * OVERLAPPED - 1], ids=["at once", "in the last run"])
def test_an_output_unlike_that_of_a_run_alone_strikes_the_rate_out_and_leaves_the_serial_one(wrong_from):
    found = spent(Camera(wrong_from))
    assert found.overlapped == Frames()
    assert found.serial.count == PAIRS * (SERIAL - 2)
    assert found.why_not.startswith("beside the next frame's pre-processing, unlike a run alone: output 'y'")


def test_what_cannot_be_started_has_the_serial_rate_and_says_why(small_model):
    found = pipeline(Subject(Opener.prepare("cpu", {}), str(small_model), SHA), 0.01, 0.1, clock=Clock())
    assert found.serial.count == PAIRS * (SERIAL - 2)
    assert (found.overlapped, found.why_not) == (Frames(), "cpu has no asynchronous runs")


def test_a_model_that_takes_no_picture_says_what_to_ask_for():
    found = pipeline(Subject(opener(Device()), "m.tflite", SHA), None, 0.1, clock=Clock())
    assert (found.serial, found.overlapped) == (Frames(), Frames())
    assert found.why_not == (
        "the model takes float32 [3]; a picture needs one input [1, height, width, 3] of float32, float16, "
        "uint8 or int8; `cpu_ms` stands for any other pre-processing"
    )


def test_a_device_runs_beside_the_pre_processing(small_model):
    found = pipeline(Subject(Opener.prepare("gpu", PLAIN), str(small_model), SHA), 0.05, 0.1, clock=Clock())
    assert found.why_not == ""
    assert found.overlapped.count == PAIRS * (OVERLAPPED - 3)
