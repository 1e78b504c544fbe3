"""The trust verdict of a cell: a real load on a real attempt, and what each kind of evidence makes of it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from agent.attempt.files import ProcessReport, Seen
from agent.machine.gate import Gate
from agent.machine.workload import FEWEST, Reading
from agent.runner.trust import Guard, trust_of
from agent.wire.measurement import ProcessSamples
from agent.wire.messages import ReasonCode, Status
from tests.agent.embedded_agent import BRIEF, job

LONG = BRIEF.model_copy(update={"min_seconds": 0.6, "max_seconds": 5.0, "max_runs": 1_000_000})


def test_a_neighbour_that_computes_makes_a_real_cell_suspect(start_agent, stored):
    agent = start_agent()
    cpus = os.sched_getaffinity(0)
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in cpus]
    try:
        result = agent.run(job(stored, "cpu", plan=LONG))
    finally:
        for process in spinning:
            process.kill()
            process.wait()
    assert result.status is Status.DONE, "a disturbed figure is kept and labelled"
    trust = result.measurement.trust
    assert trust.verdict in ("suspect", "invalid"), trust
    assert any(reason.startswith("process 2: other programs used") for reason in trust.reasons), trust
    assert any("others kept a thread from its CPU" in reason for reason in trust.reasons), trust
    assert {"foreign CPU time", "preemption", "suspend", "page faults"} <= set(trust.seen)
    unseen = [text.partition(":")[0] for text in trust.unseen]
    assert "medians of the processes" in unseen, "one process alone"
    assert "calibration workload" in unseen, "a new device has no history"
    assert not set(trust.seen) & set(unseen)
    for sensor in ("CPU clock", "CPU temperature", "CPU throttling by heat", "CPU energy"):
        assert (sensor in trust.seen) != (sensor in unseen), trust


def test_a_device_gets_a_history_of_its_workload(start_agent, stored):
    agent = start_agent()
    facts = agent.run(job(stored, "cpu")).facts
    before_and_after = 2
    assert len(facts["workload_compute_ns"].split()) == before_and_after
    assert '"host-cpu"' in (agent.state / "workload.json").read_text()


@pytest.mark.parametrize("layer", ["POCL_DEBUG", "LD_AUDIT"])
def test_publish_is_refused_where_a_layer_changes_what_is_measured(start_agent, stored, monkeypatch, layer):
    monkeypatch.setenv(layer, "")
    agent = start_agent(runner=["/usr/bin/env", f"{layer}=/nowhere", sys.executable, "-m", "agent.runner"])
    plan = BRIEF.model_copy(update={"level": "publish"})
    result = agent.run(job(stored, "cpu", plan=plan))
    assert (result.status, result.reason.code) == (Status.UNSUPPORTED, ReasonCode.NO_DEVICE)
    assert result.reason.text.startswith(f"publish: {layer}=/nowhere is set")


def report(index: int, low: int = 100, high: int = 102, count: int = 300, **more: object) -> ProcessReport:
    flags, tuning = more.pop("flags", ()), more.pop("tuning", 0)
    samples = ProcessSamples(
        index=index, cache="warm" if index else "cold", tuning=tuning, init_ns=1, first_ns=1, warmup_ns=(),
        invoke_ns=(101,) * count, memory_peak_bytes=1, memory_before_bytes=1, flags=flags,
        facts={"p50_interval_ns": f"{low}..{high}"},
    )  # fmt: skip
    fields = {"environment": {"kernel": "6"}, "saw": Seen(seen=("swap",))}
    return ProcessReport(samples=samples, **fields | more)


def guard(*history: Reading) -> Guard:
    return Guard(Gate((0,), history, 0, lambda _phase: None), history, waits=False)


COLD = report(0)


def test_what_nothing_disturbed_is_trusted_with_the_evidence():
    trust = trust_of(guard(*[Reading(1, 1)] * FEWEST), [COLD, report(1), report(2)])
    assert (trust.verdict, trust.reasons, trust.unseen) == ("trusted", (), ())
    assert {"swap", "drift", "medians of the processes", "calibration workload"} <= set(trust.seen)


def test_a_machine_that_is_slow_before_and_after_a_process_disturbed_it():
    usual = guard(*[Reading(1, 1)] * FEWEST)
    usual.around(1, lambda: None, timed=True)
    assert usual.reasons[0].startswith("before and after process 2: computing took ")


@pytest.mark.parametrize(
    ("reports", "verdict", "reason"),
    [
        (
            [report(1), report(2, 115, 117)],
            "suspect",
            "the median of process 3 is 13% above that of process 2",
        ),
        ([report(1), report(2, 111, 150)], "trusted", None),
        ([report(1), report(2, 115, 117, tuning=1)], "trusted", None),
        (
            [report(1), report(2, tuning=1), report(3, 115, 117, tuning=1)],
            "suspect",
            "the median of process 4 is 13% above that of process 3",
        ),
        ([report(1, flags=("drift: +3%",)), report(2)], "suspect", "process 2: drift: +3%"),
        ([report(1, flags=("timer_overhead: 9 ns",)), report(2)], "trusted", None),
        ([report(1, flags=("cached: 9 ms",))], "invalid", "process 2: cached: 9 ms"),
        ([report(1, flags=("cached: 9 ms",)), report(2)], "suspect", "process 2: cached: 9 ms"),
        ([report(1, saw=Seen(suspect=("loud",)))], "suspect", "process 2: loud"),
        ([report(1, saw=Seen(suspect=("loud",), invalid=("asleep",)))], "invalid", "process 2: asleep"),
        (
            [report(1), report(2, environment={"kernel": "7"})],
            "invalid",
            "kernel changed while it was measured",
        ),
    ],
)
def test_each_kind_of_evidence_has_its_verdict(reports, verdict, reason):
    trust = trust_of(guard(), [COLD, *reports])
    assert trust.verdict == verdict
    assert (trust.reasons == ()) if reason is None else trust.reasons[0].startswith(reason)


def test_the_least_of_all_processes_is_what_was_seen():
    blind = report(1, saw=Seen(unseen=("swap: the kernel does not count it",)), count=12)
    trust = trust_of(guard(), [COLD, blind, report(2)])
    assert "swap" not in trust.seen
    assert "swap: the kernel does not count it" in trust.unseen
    assert "drift: 12 samples of a process; it needs 210" in trust.unseen
