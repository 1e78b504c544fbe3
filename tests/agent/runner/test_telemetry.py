"""Sensor readings taken while a process is timed become part of its report; a process of its own reads
them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.attempt.files import AttemptFile, ProcessReport, Seen
from agent.machine.sensors.discovery import sensors_of
from agent.machine.sensors.sensor import PROCESSOR, Found, Quantity, Sensor
from agent.runner.passes.telemetry import TURNS_ENERGY, Telemetry, energy_over
from agent.wire.measurement import TOOK_TURNS, ProcessSamples, TimedSlice
from agent.wire.messages import Device
from tests.agent.embedded_agent import job
from tests.agent.machine.sensors.trees import INTEL_XEON, tree

CPU = Device(
    device_id="host-cpu",
    kind="cpu",
    api="host",
    name="a CPU",
    exclusion_group="h",
    delegates=(),
    environment={},
)
BEGIN_S, SECONDS, CALLS = 100.0, 2.0, 400


def timed(**facts: str) -> ProcessReport:
    samples = ProcessSamples(
        index=1, cache="warm", init_ns=1, first_ns=1, warmup_ns=(),
        invoke_ns=(int(1e9 * SECONDS / CALLS),) * CALLS,
        memory_peak_bytes=1, memory_before_bytes=1, facts=facts,
    )  # fmt: skip
    return ProcessReport(samples=samples, saw=Seen(seen=("swap",)))


WINDOW = {"timed_from_s": f"{BEGIN_S}", "watched_s": f"{SECONDS}"}


@pytest.fixture
def telemetry(tmp_path):
    """Describe an Intel host: hot before the loop, throttled within it, 30 W throughout; its temperature
    vanished.
    """
    found = sensors_of(PROCESSOR, [0], tree(tmp_path, INTEL_XEON))
    names = [one.name for one in found.sensors]
    assert names == ["CPU clock", "CPU temperature", "CPU throttling by heat", "CPU energy"]
    rows = []
    for step in range(40):
        at_s = BEGIN_S - 1 + 0.1 * step + 0.05
        throttled = 3 if at_s < BEGIN_S + 1 else 4
        rows.append({"at_ns": int(at_s * 1e9), "values": [2600.0, None, throttled, 30.0 * at_s]})
    rows.insert(1, {"lost": 1, "why": "gone"})
    path = tmp_path / "sensors"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Telemetry(found, path)


def test_a_timed_loop_gets_what_was_read_in_it(telemetry):
    found = telemetry.evidence(CPU, timed(**WINDOW))
    assert found.saw.invalid == ("CPU throttling by heat: 1 times",)
    assert found.saw.suspect == ()
    assert found.saw.seen == ("swap", "CPU clock", "CPU throttling by heat", "CPU energy")
    assert found.saw.unseen == ("CPU temperature: vanished while it was read (gone)",)
    assert float(found.samples.facts["energy_j"]) == pytest.approx(30.0 * SECONDS / CALLS, rel=1e-3)


def test_the_energy_of_a_call_is_the_mean_of_all_timed_processes_or_says_why_there_is_none(
    telemetry, tmp_path
):
    cold, warm = timed(), telemetry.evidence(CPU, timed(**WINDOW))
    cold = cold.model_copy(update={"samples": cold.samples.model_copy(update={"invoke_ns": ()})})
    energy = telemetry.energy(CPU, [cold, warm, warm], alternated=False)
    assert energy.invoke_mj == pytest.approx(1e3 * 30.0 * SECONDS / CALLS, rel=1e-3)
    assert energy.note == ""
    short = telemetry.energy(CPU, [cold, warm, timed()], alternated=False)
    assert (short.invoke_mj, short.note) == (None, "a process was timed for less than 1 s of readings")
    turns = telemetry.energy(CPU, [cold, warm], alternated=True)
    assert (turns.invoke_mj, turns.note.partition(";")[0]) == (None, "arms took turns by slices")
    bare = Telemetry(sensors_of(PROCESSOR, [0], tmp_path / "nothing"), tmp_path / "sensors")
    found = bare.energy(CPU, [cold, warm], alternated=False)
    assert found.invoke_mj is None
    assert found.note == "CPU energy: no RAPL counter of a package in /sys/class/powercap"


def in_turns(*joules: float) -> list[ProcessReport]:
    reports = [timed(**{TURNS_ENERGY: f"{one}"}) for one in joules]
    samples = [report.samples.model_copy(update={"index": k}) for k, report in enumerate(reports, 1)]
    return [r.model_copy(update={"samples": one}) for r, one in zip(reports, samples, strict=True)]


def test_the_energy_of_arms_that_take_turns_is_that_of_their_own_turns_and_compared_by_blocks(telemetry):
    own, base = in_turns(0.002, 0.0022, 0.0018), in_turns(0.003, 0.0033, 0.0027, 9.0)
    found = telemetry.energy(CPU, own, alternated=True)
    assert found.invoke_mj == pytest.approx(2.0)
    low, high = found.ci95
    assert low < 2.0 < high
    over = energy_over(found, CPU, own, CPU, base)
    assert (over.ratio, over.ratio_ci95) == (pytest.approx(1.5), pytest.approx((1.5, 1.5)))
    gpu = CPU.model_copy(update={"kind": "gpu", "environment": {"opencl_pci": "0000:03:00.0"}})
    assert energy_over(found, CPU, own, gpu, base) == found, "another counter"
    assert energy_over(found, CPU, own, CPU, [timed()]) == found
    assert energy_over(found, CPU, in_turns(0.0), CPU, base) == found
    mixed = telemetry.energy(CPU, [*own, timed(energy_j="1")], alternated=True)
    assert (mixed.invoke_mj, mixed.note) == (None, TOOK_TURNS)


def test_the_counter_of_the_processors_is_read_at_the_ends_of_a_turn(telemetry, tmp_path):
    gpu = CPU.model_copy(update={"kind": "gpu", "environment": {"opencl_pci": "0000:03:00.0"}})
    before = telemetry.joules(CPU)
    (counter,) = tmp_path.rglob("intel-rapl:0/energy_uj")
    counter.write_text(str(int(counter.read_text()) + 4_000_000))
    assert telemetry.joules(CPU) - before == pytest.approx(4.0)
    assert telemetry.joules(gpu) is None
    counter.unlink()
    assert telemetry.joules(CPU) is None


def test_the_rise_of_the_temperature_is_that_over_the_first_reading(tmp_path):
    sensors = (Sensor(PROCESSOR, "CPU temperature", Quantity.TEMPERATURE, lambda: 0.0),)
    rows = [{"at_ns": int((BEGIN_S + step) * 1e9), "values": [40.0 + step]} for step in range(9)]
    (tmp_path / "sensors").write_text("".join(json.dumps(row) + "\n" for row in rows))
    heat = Telemetry(Found(sensors), tmp_path / "sensors")
    windows = [{**WINDOW, "timed_from_s": f"{BEGIN_S + step}"} for step in (-0.5, 3.5)]
    reports = [heat.evidence(CPU, timed(**window)) for window in windows]
    reports[1] = reports[1].model_copy(update={"samples": reports[1].samples.model_copy(update={"index": 2})})
    assert heat.energy(CPU, reports, alternated=False).rise_c == 5.0, "from 40 to 45 degrees"
    turns = heat.energy(CPU, reports, alternated=True)
    assert (turns.rise_c, turns.rise_note.partition(";")[0]) == (None, "arms took turns by slices")
    bare = Telemetry(sensors_of(PROCESSOR, [0], tmp_path / "nothing"), tmp_path / "sensors")
    assert bare.energy(CPU, reports, alternated=False).rise_note.startswith("CPU temperature: no hwmon of")


def test_a_loop_between_two_readings_says_that_it_was_too_short(telemetry):
    found = telemetry.evidence(CPU, timed(timed_from_s="100.0", watched_s="0.1"))
    assert found.saw.seen == ("swap",)
    assert "CPU clock: 1 readings while it was timed; 3 are needed" in found.saw.unseen
    assert "energy_j" not in found.samples.facts


def test_the_sensors_of_another_part_say_nothing_of_a_gpu(telemetry):
    gpu = CPU.model_copy(update={"kind": "gpu", "environment": {"opencl_pci": "0000:03:00.0"}})
    assert telemetry.evidence(gpu, timed(**WINDOW)).saw == Seen(seen=("swap",))


def test_what_is_read_in_the_turns_of_others_says_nothing_of_an_arm(telemetry):
    """The package was throttled from 101 s on; the arm's slices ended before."""
    turns = ((int(100.0e9), int(100.3e9)), (int(100.5e9), int(100.8e9)))
    found = telemetry.evidence(CPU, timed(**WINDOW).model_copy(update={"turns": turns}))
    assert found.saw.invalid == ()
    assert "CPU throttling by heat" in found.saw.seen
    assert "energy_j" in found.samples.facts
    dropped = timed(**WINDOW)
    slices = (TimedSlice(round=0, runs=CALLS, kept=False),)
    dropped = dropped.model_copy(update={"samples": dropped.samples.model_copy(update={"slices": slices})})
    assert telemetry.evidence(CPU, dropped) == dropped, "of a block that was measured once more, nothing"


@pytest.fixture
def graphics(tmp_path):
    """Describe a GPU of 1755 MHz: slow from 101 to 102 s, with a guest from 103 s on."""
    part = "0000:03:00.0"
    sensors = (
        Sensor(part, "GPU clock", Quantity.CLOCK, lambda: 0.0, 1755.0),
        Sensor(part, "other processes on the GPU", Quantity.PROCESSES, lambda: 0.0),
    )
    rows = [
        {"at_ns": int(at_s * 1e9), "values": [1000.0 if 101 <= at_s < 102 else 1980.0, 2 + (at_s >= 103)]}
        for at_s in (100 + 0.1 * k for k in range(40))
    ]
    path = tmp_path / "sensors"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Telemetry(Found(sensors), path)


@pytest.mark.parametrize(
    ("begin_s", "arms", "said"),
    [
        (100.25, 2, None),
        (101.25, 2, "GPU clock: below 75% of 1755 MHz in 100% of the readings"),
        (102.25, 2, None),
        (103.25, 2, "1 other process computed on the GPU"),
        (103.25, 3, None),
        (200.0, 2, None),
    ],
)
def test_a_slice_on_a_gpu_is_judged_by_what_was_read_in_it(graphics, begin_s, arms, said):
    gpu = CPU.model_copy(update={"kind": "gpu", "environment": {"opencl_pci": "0000:03:00.0"}})
    assert graphics.disturbing(gpu, begin_s, begin_s + 0.2, arms) == said
    behind_opencl = gpu.model_copy(update={"kind": "cpu"})
    assert graphics.disturbing(behind_opencl, begin_s, begin_s + 0.2, arms) is None
    assert graphics.disturbing(gpu.model_copy(update={"environment": {}}), begin_s, 999.0, arms) is None


def test_a_process_that_timed_nothing_has_no_evidence(telemetry):
    assert telemetry.evidence(CPU, timed()) == timed()


def test_the_sensors_are_read_by_a_process_of_its_own_until_it_is_asked_to_end(tmp_path, stored):
    attempt = AttemptFile(job=job(stored, "cpu"), device=CPU, model_path="m", references="r")
    path = tmp_path / "job.json"
    path.write_text(attempt.model_dump_json())
    before_ns = time.monotonic_ns()
    process = subprocess.Popen([sys.executable, "-m", "agent.runner", "--sensors", str(path)])
    try:
        lines: list[str] = []
        until = time.monotonic() + 60
        while len(lines) < 3 and time.monotonic() < until:
            time.sleep(0.05)
            recorded = Path(tmp_path / "sensors")
            lines = recorded.read_text().splitlines() if recorded.exists() else []
    finally:
        process.terminate()
        assert process.wait(60) == 0
    times = [json.loads(line)["at_ns"] for line in lines]
    assert len(times) >= 3
    assert before_ns < times[0] < times[-1] < time.monotonic_ns(), "the clock of the samples"
    assert len(json.loads(lines[0])["values"]) == len(sensors_of(PROCESSOR, os.sched_getaffinity(0)).sensors)
