"""The pass with pre-processing beside the runs: its rates, and why one is missing."""

from __future__ import annotations

import pytest

from agent.attempt.files import Failure
from agent.runner.passes.pipeline import Frames, PipelineReport, pipeline_of
from agent.wire.messages import Reason, ReasonCode, Status
from agent.wire.passes import PipelinePlan

ASKED = PipelinePlan(cpu_ms=3)
SERIAL = Frames(count=100, wall_ns=1_000_000_000, preprocess_ns=300_000_000)
NAMES = ("per_second", "gain", "serial_per_second", "preprocess_ms", "run_ms")


def test_rates_are_frames_over_their_wall_time_and_the_gain_is_their_ratio():
    both = PipelineReport(serial=SERIAL, overlapped=Frames(count=140, wall_ns=1_000_000_000))
    found = pipeline_of(both, ASKED)
    assert found.missing == {}
    assert found.preprocess == "3 ms of a processor"
    figures = (found.per_second, found.gain, found.serial_per_second, found.preprocess_ms, found.run_ms)
    assert figures == pytest.approx((140, 1.4, 100, 3, 7))
    assert pipeline_of(both, PipelinePlan()).preprocess == "resize 1280x720"


def test_without_asynchronous_runs_the_serial_figures_stand():
    found = pipeline_of(PipelineReport(serial=SERIAL, why_not="cpu has no asynchronous runs"), ASKED)
    assert found.missing == dict.fromkeys(NAMES[:2], "cpu has no asynchronous runs")
    assert (found.per_second, found.gain) == (None, None)
    assert (found.serial_per_second, found.preprocess_ms, found.run_ms) == pytest.approx((100, 3, 7))


def test_what_is_missing_has_its_reason_under_each_name():
    lost = Failure(status=Status.FAILED, reason=Reason(code=ReasonCode.DEVICE_LOST, text="the GPU is lost"))
    for report, why in (
        (PipelineReport(why_not="the model takes int32 [1]"), "the model takes int32 [1]"),
        (PipelineReport(failure=lost), "the GPU is lost"),
        (PipelineReport(), "it reported nothing"),
    ):
        found = pipeline_of(report, ASKED)
        assert found.missing == dict.fromkeys(NAMES, why)
        assert {getattr(found, name) for name in NAMES} == {None}
