"""The quality of a measurement: a real load on a real attempt, and what each kind of evidence makes of it."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from agent.attempt.files import ProcessReport, Seen
from agent.machine.workload import FEWEST, Reading
from agent.runner.turns.quality import quality_of
from agent.wire.measurement import BlockFigure, ProcessSamples, TimedSlice
from agent.wire.messages import Heartbeat, JobResult, ReasonCode, Status
from tests.agent.embedded_agent import BRIEF, job

LONG = BRIEF.model_copy(update={"rounds": 5, "slice_seconds": 0.2})


@pytest.mark.slow
def test_a_neighbour_that_computes_is_in_the_allowance_of_a_real_cell(start_agent, stored):
    agent = start_agent()
    cpus = os.sched_getaffinity(0)
    agent.send(job(stored, "cpu", plan=LONG))
    agent.expect(Heartbeat, lambda beat: beat.phase.startswith("block 1 of"))
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in cpus]
    try:
        result = agent.expect(JobResult)
    finally:
        for process in spinning:
            process.kill()
            process.wait()
    assert result.status is Status.DONE, "a disturbed figure is kept"
    quality = result.measurement.quality
    assert quality.allowance > 0.05, quality
    assert (quality.rounds, quality.repeated) >= (LONG.rounds, 0), "nothing is dropped where all is disturbed"
    assert quality.repeated == 0
    assert any(fact.startswith("block 1: other programs used") for fact in quality.facts), quality
    assert {"foreign CPU time", "suspend", "page faults"} <= set(quality.seen)
    unseen = [text.partition(":")[0] for text in quality.unseen]
    assert "calibration workload" in unseen, "a new device has no history"
    assert not set(quality.seen) & set(unseen)
    for sensor in ("CPU clock", "CPU temperature", "CPU throttling by heat", "CPU energy"):
        assert (sensor in quality.seen) != (sensor in unseen), quality


@pytest.mark.slow
def test_a_device_gets_a_history_of_its_workload(start_agent, stored):
    agent = start_agent()
    facts = agent.run(job(stored, "cpu")).facts
    assert len(facts["workload_compute_ns"].split()) == 1, "one for each block"
    assert '"host-cpu"' in (agent.state / "workload.json").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["POCL_DEBUG", "LD_AUDIT"])
def test_publish_is_refused_where_a_layer_changes_what_is_measured(start_agent, stored, monkeypatch, layer):
    monkeypatch.setenv(layer, "")
    agent = start_agent(runner=["/usr/bin/env", f"{layer}=/nowhere", sys.executable, "-m", "agent.runner"])
    plan = BRIEF.model_copy(update={"level": "publish"})
    result = agent.run(job(stored, "cpu", plan=plan))
    assert (result.status, result.reason.code) == (Status.UNSUPPORTED, ReasonCode.NO_DEVICE)
    assert result.reason.text.startswith(f"publish: {layer}=/nowhere is set")


def report(index: int, *medians: int, flags: tuple[str, ...] = (), **more: object) -> ProcessReport:
    """Build a process whose rounds have these medians in ns."""
    medians = medians or (100,) * 6
    samples = ProcessSamples(
        index=index, cache="warm" if index else "cold", init_ns=1, first_ns=1, warmup_ns=(),
        invoke_ns=medians if index else (), memory_peak_bytes=1, memory_before_bytes=1, flags=flags,
        slices=tuple(TimedSlice(round=k, runs=1) for k in range(len(medians))) if index else (),
    )  # fmt: skip
    fields = {"environment": {"kernel": "6"}, "saw": Seen(seen=("swap",))}
    return ProcessReport(samples=samples, **fields | more)


def arm(*reports: ProcessReport) -> SimpleNamespace:
    return SimpleNamespace(
        name="gpu@host", reports=[COLD, *reports], blocks=lambda: BLOCKS, alternated=True, stopped="decided"
    )


COLD = report(0)
BLOCKS = [BlockFigure(p50_ns=100.0, rounds=6, repeated=3, allowance=0.0)]
USUAL = [Reading(1, 1)] * FEWEST


def test_what_nothing_disturbed_is_whole_and_says_how_it_was_measured():
    quality = quality_of(arm(report(1), report(2)), USUAL, ["before block 1: busy"])
    assert (quality.void, quality.doubts) == ((), ())
    assert (quality.allowance, quality.repeated, quality.stopped) == (0.0, 3, "decided")
    assert quality.facts == ("before block 1: busy",)
    assert {"swap", "calibration workload"} <= set(quality.seen)


@pytest.mark.parametrize(
    ("reports", "field", "text"),
    [
        ([report(1, flags=("drift: +3%",))], "facts", "block 1: drift: +3%"),
        ([report(1, flags=("timer_overhead: 9 ns",))], "facts", "block 1: timer_overhead: 9 ns"),
        ([report(1, flags=("cached: 9 ms",))], "void", "cached: 9 ms (1 of 1 processes)"),
        ([report(1, flags=("cached: 9 ms",)), report(2)], None, None),
        ([report(1, saw=Seen(suspect=("loud",)))], "facts", "block 1: loud"),
        ([report(1, saw=Seen(invalid=("asleep",)))], "void", "block 1: asleep"),
        ([report(1), report(2, environment={"kernel": "7"})], "void", "kernel changed while it was measured"),
        (
            [report(k, 100, 100, 120, 120, 150, 150) for k in (1, 2, 3)],
            "void",
            "not steady: each process slows",
        ),
        (
            [report(k, 150, 150, 120, 120, 100, 100) for k in (1, 2, 3)],
            "void",
            "not steady: each process speeds",
        ),
        ([report(1), *(report(k, 100, 100, 120, 120, 150, 150) for k in (2, 3))], None, None),
        ([report(1), report(2, 115, 117, 115, 116, 117, 118)], None, None),
    ],
)
def test_each_kind_of_evidence_has_its_place(reports, field, text):
    quality = quality_of(arm(*reports), (), ())
    said = {name: getattr(quality, name) for name in ("void", "doubts", "facts")}
    assert {name for name, texts in said.items() if texts} == ({field} if field else set())
    assert field is None or said[field][0].startswith(text)


def test_what_the_outputs_or_a_cold_start_say_against_it_is_a_doubt():
    early = report(0, flags=("early_return: invoke returns before the work is done",))
    found = arm(report(1))
    found.reports[0] = early
    quality = quality_of(found, (), (), ["process 2: nondeterministic"])
    assert quality.doubts == (
        "early_return: invoke returns before the work is done (1 of 1 processes)",
        "process 2: nondeterministic",
    )


def test_the_least_of_all_processes_is_what_was_seen():
    blind = report(1, saw=Seen(unseen=("swap: the kernel does not count it",)))
    quality = quality_of(arm(blind, report(2)), (), ())
    assert "swap" not in quality.seen
    assert "swap: the kernel does not count it" in quality.unseen
