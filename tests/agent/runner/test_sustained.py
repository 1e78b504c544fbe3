"""The pass without a pause: after all is timed, with the clock of each part; it costs no other figure."""

from __future__ import annotations

import json
import sys

from agent.attempt.files import AttemptFile, Failure
from agent.machine.sensors.sensor import PROCESSOR, Found, Missing, Quantity, Sensor
from agent.runner.passes.sustained import SlicedRuns, SustainedReport, sustained
from agent.runner.passes.telemetry import Telemetry
from agent.runner.turns import children
from agent.runner.turns.comparison import Clock
from agent.wire.messages import Device, Reason, ReasonCode, Status
from tests.agent.embedded_agent import BRIEF, job

PLAN = BRIEF.model_copy(update={"sustained_s": 0.4})
CPU = Device(
    device_id="host-cpu", kind="cpu", api="host", name="cpu", delegates=("cpu",), exclusion_group="h:cpu",
    environment={},
)  # fmt: skip


def attempt(stored, tmp_path) -> AttemptFile:
    return AttemptFile(job=job(stored, plan=PLAN), device=CPU, model_path="m", references="r")


def report(*p50_ns: int) -> SustainedReport:
    parts = (
        SlicedRuns(begin_ns=1_000_000_000 * place, seconds=1.0, runs=9, p50_ns=ns)
        for place, ns in enumerate(p50_ns, 5)
    )
    return SustainedReport(slices=tuple(parts))


def test_each_part_has_the_clock_that_was_read_in_it(stored, tmp_path):
    path = tmp_path / "sensors"
    rows = [{"at_ns": at, "values": [mhz]} for at, mhz in [(5_100_000_000, 3000.0), (5_900_000_000, 3200.0)]]
    rows += [{"at_ns": 6_500_000_000, "values": [2400.0]}, {"at_ns": 9_000_000_000, "values": [1.0]}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    clock = Sensor(PROCESSOR, "CPU clock", Quantity.CLOCK, lambda: 0.0)
    found = sustained(
        report(2_000_000, 3_000_000), attempt(stored, tmp_path), Telemetry(Found((clock,)), path)
    )
    assert [(one.from_s, one.p50_ms, one.runs, one.clock_mhz) for one in found.slices] == [
        (0.0, 2.0, 9, 3100.0),
        (1.0, 3.0, 9, 2400.0),
    ]
    assert (found.end_over_start, found.clock_note, found.note) == (1.5, "", "")


def test_what_is_missing_has_its_reason(stored, tmp_path):
    lacking = Telemetry(Found(missing=(Missing(PROCESSOR, "CPU clock", "no cpufreq"),)), tmp_path / "none")
    found = sustained(report(2_000_000, 2_000_000), attempt(stored, tmp_path), lacking)
    assert (found.end_over_start, found.note) == (1.0, "")
    assert {part.clock_mhz for part in found.slices} == {None}
    assert found.clock_note == "CPU clock: no cpufreq"
    reason = Reason(code=ReasonCode.DEVICE_LOST, text="the GPU fell off the bus")
    failed = SustainedReport(failure=Failure(status=Status.FAILED, reason=reason))
    assert sustained(failed, attempt(stored, tmp_path), lacking).note == "the GPU fell off the bus"


def test_a_pass_that_dies_is_told_and_costs_nothing_else(stored, tmp_path, monkeypatch):
    dying = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    monkeypatch.setattr(children, "RUNNER_COMMAND", [sys.executable, "-c", dying])
    died = children.Children(attempt(stored, tmp_path), tmp_path / "job.json", tmp_path, Clock()).run_pass(
        SustainedReport, {}
    )
    found = sustained(died, attempt(stored, tmp_path), Telemetry(Found(), tmp_path / "none"))
    assert (found.slices, found.end_over_start) == ((), None)
    assert found.note.startswith("the sustained process")
    assert "SIGSEGV" in found.note
