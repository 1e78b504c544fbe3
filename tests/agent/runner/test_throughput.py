"""The pass with several runs in flight: what it says, and why it says nothing; it costs no other figure."""

from __future__ import annotations

import sys

import pytest

from agent.attempt.files import AttemptFile, Failure
from agent.runner.passes.throughput import ThroughputReport, throughput
from agent.runner.turns import children
from agent.runner.turns.comparison import Clock
from agent.wire.messages import Device, Reason, ReasonCode, Status
from agent.wire.passes import ThroughputPlan
from tests.agent.embedded_agent import BRIEF, job

ASKED = ThroughputPlan(in_flight=4, seconds=0.5)
CPU = Device(
    device_id="host-cpu", kind="cpu", api="host", name="cpu", delegates=("cpu",), exclusion_group="h:cpu",
    environment={},
)  # fmt: skip


def test_the_rate_is_what_ended_over_the_wall_time():
    found = throughput(ThroughputReport(runs=30, wall_ns=600_000_000), ASKED)
    assert (found.in_flight, found.seconds, found.runs, found.missing) == (4, 0.6, 30, {})
    assert found.per_second == pytest.approx(50)


def test_what_is_missing_has_its_reason_under_each_name():
    lost = Failure(status=Status.FAILED, reason=Reason(code=ReasonCode.DEVICE_LOST, text="the GPU is lost"))
    for report, why in (
        (ThroughputReport(why_not="litert has no asynchronous runs"), "litert has no asynchronous runs"),
        (ThroughputReport(failure=lost), "the GPU is lost"),
        (ThroughputReport(), "it reported nothing"),
    ):
        found = throughput(report, ASKED)
        assert (found.in_flight, found.seconds, found.runs, found.per_second) == (4, None, None, None)
        assert found.missing == dict.fromkeys(("seconds", "runs", "per_second"), why)


def test_a_pass_that_dies_is_told(stored, tmp_path, monkeypatch):
    spec = job(stored, plan=BRIEF.model_copy(update={"throughput": ASKED}))
    attempt = AttemptFile(job=spec, device=CPU, model_path="m", references="r")
    dying = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    monkeypatch.setattr(children, "RUNNER_COMMAND", [sys.executable, "-c", dying])
    died = children.Children(attempt, tmp_path / "job.json", tmp_path, Clock()).run_pass(ThroughputReport, {})
    why = throughput(died, ASKED).missing["per_second"]
    assert why.startswith("the throughput process")
    assert "SIGSEGV" in why
