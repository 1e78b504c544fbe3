"""A model invoked without a pause: parts that follow one another, each with its median."""

from __future__ import annotations

import gc
import time
from types import SimpleNamespace

import numpy as np
import pytest

from runtime.measure.loading import Opener, Subject
from runtime.measure.sustained import FEWEST_SLICES, SLICE_S, sustain

SHA = "cd" * 32


class Slow:
    """A model of which one invoke takes longer than the whole pass."""

    def get_input_details(self):
        return [{"index": 0, "name": "x", "shape": [1], "dtype": np.float32, "quantization": (0.0, 0)}]

    def get_output_details(self):
        return [{"index": 1, "name": "y"}]

    def set_tensor(self, index, value):
        pass

    def invoke(self):
        time.sleep(0.03)

    def get_tensor(self, index):
        return np.zeros(1, np.float32)


def test_a_short_pass_is_divided_and_its_parts_follow_one_another(small_model):
    told = []
    found = sustain(
        Subject(Opener.prepare("cpu", {}), str(small_model), SHA), 0.1, on_slice=lambda *at: told.append(at)
    )
    assert 1 < len(found) <= FEWEST_SLICES, "a part that lasts too long takes the time of a later one"
    assert told == [(number, FEWEST_SLICES) for number in range(1, len(found) + 1)]
    assert all(one.runs >= 1 and one.p50_ns > 0 for one in found)
    assert all(one.p50_ns * one.runs / 2 <= one.seconds * 1e9 for one in found), "half of them are no shorter"
    ends = [one.begin_ns + one.seconds * 1e9 for one in found]
    assert all(end <= after.begin_ns + 1 for end, after in zip(ends, found[1:], strict=False))
    assert gc.isenabled()


def test_a_model_that_takes_longer_than_the_pass_has_a_first_and_a_last_part():
    opener = SimpleNamespace(open=lambda path, rules: SimpleNamespace(model=Slow()))
    found = sustain(Subject(opener, "slow.tflite", SHA), 0.01)
    assert [one.runs for one in found] == [1, 1]
    assert min(one.seconds for one in found) >= 0.03


def test_ten_minutes_are_told_by_half_minute(small_model):
    counts = []

    def first_only(number, count):
        counts.append(count)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        sustain(Subject(Opener.prepare("cpu", {}), str(small_model), SHA), 600.0, on_slice=first_only)
    assert counts == [600 / SLICE_S] == [20]
