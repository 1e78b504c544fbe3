"""Real models through a real agent, over the socket pair: what comes back, and what it rests on."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys

import numpy as np
import pytest

from agent.attempt import runlog
from agent.wire.measurement import ProcessSamples
from agent.wire.messages import JobResult, ReasonCode, Receipt, Status, artifact_path
from agent.wire.passes import PipelinePlan, ThroughputPlan
from agent.wire.plan import InputData, InputSpec
from agent.wire.provenance import conditions_of, versions_of
from runtime.measure.samples.summary import FLOORS
from tests.agent.embedded_agent import BRIEF, EmbeddedAgent, eventually, job, put_model
from tests.agent.runner.test_reported import relisted
from tests.needs import absent
from tests.services import known

THREE = BRIEF.model_copy(update={"min_blocks": 3, "max_blocks": 3, "slice_runs": 2})


def measured(agent, spec) -> JobResult:
    result = agent.run(spec)
    assert result.status is Status.DONE, (result.reason, result.log_tail)
    return result


def opencl_device(agent) -> str:
    found = [device.device_id for device in agent.hello.devices if device.api == "opencl"]
    return found[0] if found else absent("no OpenCL device on this machine")


def samples_of(agent, result) -> list[ProcessSamples]:
    data = artifact_path(agent.store, result.measurement.samples_sha256).read_bytes()
    assert hashlib.sha256(data).hexdigest() == result.measurement.samples_sha256
    return [ProcessSamples.model_validate(entry) for entry in json.loads(data)]


@pytest.mark.parametrize("delegate", ["litert", "cpu", "gpu"])
def test_tiny_model_is_measured_and_judged(agent, stored, delegate):
    device = opencl_device(agent) if delegate == "gpu" else "host-cpu"
    # Further processes, which everybody need not wait for here.
    asked = {
        "gpu": {
            "sustained_s": 1.5,
            "throughput": ThroughputPlan(in_flight=3, seconds=0.2),
            "pipeline": PipelinePlan(cpu_ms=0.1, seconds=0.2),
            "profile": "kernels",
        },
        "litert": {"throughput": ThroughputPlan(in_flight=3, seconds=0.2), "profile": "ops"},
    }
    plan = THREE.model_copy(update=asked.get(delegate, {}))
    result = measured(agent, job(stored, delegate, device, plan=plan))
    listed = next(entry for entry in agent.hello.devices if entry.device_id == device)
    assert result.environment == listed.environment_of(delegate, {}), (
        "otherwise no result would ever be reused"
    )
    found = result.measurement
    assert found.accuracy.verdict == "pass", found.accuracy
    assert found.accuracy.reference.startswith("LiteRT")
    assert found.samples >= 3 * THREE.rounds * THREE.slice_runs
    assert found.latency_ms.p50 > 0
    low, high = found.latency_ms.ci95
    assert low <= found.latency_ms.p50 <= high
    assert found.latency_ms.p99 is None
    assert "662" in found.latency_ms.missing["p99"]
    assert json.loads(found.settings["sample_floors"]) == FLOORS
    assert found.settings["threads"] == str(len(os.sched_getaffinity(0)))
    assert (found.delegation is None) == (delegate != "gpu")
    processes = samples_of(agent, result)
    cold, *every = processes
    timed = [p for p in every if p.kept_ns]
    assert [p.cache for p in (cold, *timed)] == ["cold", "warm", "warm", "warm"]
    assert len(every) == len(timed) + found.quality.repeated_blocks
    assert cold.invoke_ns == (), "who compiles is no sample of the steady state"
    assert found.samples == sum(len(p.kept_ns) for p in timed)
    assert all(sum(one.runs for one in p.slices) == len(p.invoke_ns) for p in timed)
    assert found.memory_peak_bytes == max(p.memory_peak_bytes for p in every) > 0
    assert found.memory_peak_cold_bytes == cold.memory_peak_bytes
    assert found.latency_ms.init == cold.init_ns / 1e6
    assert all(sum(p.stages_ns.values()) <= p.init_ns for p in processes)
    assert found.init.cold.n == 1
    assert found.init.warm.n == len(every)
    assert ("parse" in found.init.missing) == (delegate == "litert")
    assert (found.memory.device is None) == (delegate != "gpu")
    assert found.memory.steady is not None
    assert (found.transfer.in_bytes is None) == (found.transfer.p50_bound_ms is None) == (delegate != "gpu")
    assert (found.cache_bytes > 10_000) == (delegate == "gpu")
    told = [said for said in found.warnings if "warm starts" in said]
    assert "disturbed" in found.settings or not told, "a disturbed start chose nothing that others may keep"
    assert found.installed.bytes > 0
    assert found.latency_ms.first == cold.first_ns / 1e6
    assert all(p.init_ns > 0 and p.first_ns > 0 for p in processes)
    assert all(min(p.invoke_ns) > 0 for p in timed)
    assert {str(len(p.warmup_ns)) for p in timed} == {found.settings["warmup_runs"]}, "found once for all"
    assert found.settings["steady_state"] == cold.facts["steady_state"]
    assert (found.quality.blocks, found.quality.alternating) == (3, False)
    assert found.quality.stopped in {"blocks", "target"}, "by how quiet the machine is"
    assert found.quality.rounds + found.quality.repeated == sum(len(p.slices) for p in timed)
    assert all(len(p.start_ns) == len(p.invoke_ns) for p in timed)
    assert found.settings["processes"] == "3"
    phases = agent.phases()
    # Elsewhere a block may be over between two heartbeats.
    assert delegate != "gpu" or any(phase.startswith("block 1 of at most 3") for phase in phases), phases
    sustained = found.sustained
    assert (sustained is None) == (delegate != "gpu"), "only where it is asked for"
    if sustained is not None:
        assert (sustained.seconds, sustained.note, sustained.slices[0].from_s) == (1.5, "", 0.0)
        start, end = sustained.slices[0].p50_ms, sustained.slices[-1].p50_ms
        assert sustained.end_over_start == pytest.approx(end / start)
        unread = any(part.clock_mhz is None for part in sustained.slices)
        assert unread == bool(sustained.clock_note), "a missing clock has its reason"
        lives = runlog.intervals(runlog.read(agent.state / "runs.log"))
        assert [life.what for life in lives[-4:]] == ["throughput", "pipeline", "profile", "sustained"], (
            "all is timed by then"
        )
        assert any(phase.startswith("sustained: part 1 of") for phase in phases), phases
    profile = found.profile
    assert (profile is None) == (delegate == "cpu"), "only where it is asked for"
    if delegate == "gpu":
        assert (profile.detail, profile.missing, profile.left_out) == ("kernels", {}, 0)
        assert profile.rows
        assert {row.place for row in profile.rows} == {"kernel"}
        assert sum(one.time_ns for one in profile.operators) == pytest.approx(
            sum(row.time_ns for row in profile.rows)
        )
        assert profile.peaks.gflops > 0.1
        assert profile.peaks.gigabytes > 0.1
        assert {"parse", "compile"} <= set(profile.stages_ns)
        assert (found.advice.verdict, found.advice.text) == ("suits", "suits the GPU")
        assert (found.advice.cpu_macs_share, found.advice.cpu_time_share) == (0.0, 0.0)
    elif delegate == "litert":
        assert (profile.detail, profile.operators) == ("ops", ())
        assert "runs whole models" in profile.missing["profile"]
    throughput = found.throughput
    assert (throughput is None) == (delegate == "cpu"), "only where it is asked for"
    if delegate == "gpu":
        assert (throughput.in_flight, throughput.missing) == (3, {})
        assert throughput.runs >= 3
        assert throughput.per_second == pytest.approx(throughput.runs / throughput.seconds)
        assert any(phase == "throughput: 3 in flight" for phase in phases), phases
        pipe = found.pipeline
        assert (pipe.missing, pipe.preprocess) == ({}, "0.1 ms of a processor")
        assert pipe.gain == pytest.approx(pipe.per_second / pipe.serial_per_second)
        assert pipe.serial_per_second == pytest.approx(1e3 / (pipe.preprocess_ms + pipe.run_ms))
        assert pipe.preprocess_ms >= 0.1
        assert "pipeline: 0.1 ms of a processor beside each run" in phases, phases
    if delegate == "litert":
        assert (throughput.in_flight, throughput.runs, throughput.per_second) == (3, None, None)
        assert throughput.missing["per_second"].startswith("litert has no asynchronous runs")


def test_gpu_cell_is_fully_delegated_where_its_device_is_now_and_its_caches_are_its_own(
    start_agent, stored, probed, tmp_path, monkeypatch
):
    elsewhere = {name: tmp_path / name for name in ("XDG_CACHE_HOME", "POCL_CACHE_DIR", "FARM_CACHE_DIR")}
    for name, folder in elsewhere.items():
        monkeypatch.setenv(name, str(folder))
    agent = start_agent(probe_command=relisted(probed, tmp_path, opencl_index="7"))
    name = opencl_device(agent)
    result = measured(agent, job(stored, "gpu", name, delegate_options={"threads": 1}))
    delegation = result.measurement.delegation
    assert (delegation.status, delegation.delegated_ops, delegation.total_ops) == ("full", 2, 2)
    (listed,) = (device for device in agent.hello.devices if device.device_id == name)
    assert result.environment == listed.environment_of("gpu", {}), "its share of the CPUs is no condition"
    conditions, versions = conditions_of(result.environment), versions_of(result.environment)
    assert {"processor", "kernel", "cpus", "governor", "cpu_quota", "opencl_device"} <= set(conditions)
    assert {"runtime", "litert", "numpy", "opencl_driver"} <= set(versions)
    assert versions["opencl_driver"]
    assert not set(conditions) & set(versions)
    settings = result.measurement.settings
    if platform.machine() == "x86_64" and settings["platform"] == "Portable Computing Language":
        # Compilers in child processes, and machine code from memory, inside the sandbox.
        assert settings["functions"] == "called by address"
    written = [
        path for folder in elsewhere.values() for path in folder.rglob("*") if path.suffix in (".so", ".bin")
    ]
    assert written == []


@pytest.mark.slow
def test_no_two_attempts_overlap_even_if_all_are_sent_at_once_and_none_leaves_its_folder(
    start_agent, stored, tmp_path, monkeypatch
):
    monkeypatch.setenv(known.VARIABLE, str(tmp_path / "known"))  # nobody else has made its references
    agent = start_agent()
    specs = [job(stored) for _ in range(2)]
    for spec in specs:
        agent.send(spec)
    results = [agent.expect(JobResult) for _ in specs]
    assert {r.status for r in results} == {Status.DONE}
    for result in results:
        agent.send(Receipt(attempt_id=result.attempt_id))
    lives = runlog.intervals(runlog.read(agent.state / "runs.log"))
    assert [life.what for life in lives].count("measure") == 4, "one cold and one timed process each"
    made = [life.what for life in lives].count("reference")
    assert made == 3, "the reference kernels' outputs and those of two honest runs are made once and cached"
    assert all(life.end_ns is not None for life in lives)
    assert runlog.overlaps(lives) == []
    kept = [path.suffix for path in (agent.state / "references").rglob("*.npz")]
    assert kept == [".npz"] * 3
    eventually(lambda: list((agent.state / "work").iterdir()) == [], "a work folder was left")


NO_LITERT = [sys.executable, "-c", """
import sys
import runtime.delegates.litert
runtime.delegates.litert.litert_version = lambda: None
from agent.runner.__main__ import main
sys.exit(main(sys.argv[1:]))
"""]  # fmt: skip


@pytest.mark.slow
def test_without_litert_our_cpu_is_the_reference_and_its_own_row_is_not_judged(start_agent, stored):
    cpu = measured(start_agent(runner=NO_LITERT), job(stored, "cpu")).measurement.accuracy
    assert cpu.verdict is None
    assert cpu.reference == "this runtime's cpu"
    assert "its own reference" in cpu.note


@pytest.mark.exhaustive
def test_without_litert_a_gpu_is_judged_by_our_cpu(start_agent, stored):
    agent = start_agent(runner=NO_LITERT)
    gpu = measured(agent, job(stored, "gpu", opencl_device(agent))).measurement.accuracy
    assert (gpu.verdict, gpu.reference) == ("pass", "this runtime's cpu")


def test_threads_are_enforced_and_recorded(agent, stored):
    result = measured(agent, job(stored, delegate_options={"threads": 1}))
    assert result.measurement.settings["threads"] == "1"
    assert result.measurement.settings["cpus"].isdecimal()
    too_many = agent.run(job(stored, delegate_options={"threads": 4096}))
    assert (too_many.status, too_many.reason.code) == (Status.UNSUPPORTED, ReasonCode.NO_DEVICE)
    assert "4096" in too_many.reason.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"resolve": "xnnpack"}, "litert: unknown option 'resolve' (did you mean 'resolver'?); it takes"),
        ({"resolver": "fast"}, "litert: option 'resolver': expected xnnpack or builtin or reference"),
    ],
    ids=["unknown", "not_allowed"],
)
def test_an_option_that_the_installed_delegate_does_not_take_fails_before_anything_runs(
    agent, stored, options, said
):
    spec = job(stored, "litert", delegate_options=options)
    result = agent.run(spec)
    assert (result.status, result.reason.code) == (Status.FAILED, ReasonCode.RUNNER_ERROR)
    assert result.reason.text.startswith(said)
    lives = runlog.intervals(runlog.read(agent.state / "runs.log"))
    assert spec.attempt_id not in {life.attempt_id for life in lives}


@pytest.mark.parametrize(
    ("delegate", "content", "named"),
    [("cpu", b"random bytes that are no model", "my-model: "), ("litert", None, "LiteRT: ")],
    ids=["noise", "cut off"],
)
def test_damaged_model_fails_with_its_format_named_by_its_id_not_by_a_path_in_the_store(
    agent, tiny, tmp_path, delegate, content, named
):
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(tiny.read_bytes()[:200] if content is None else content)
    result = agent.run(job(put_model(agent.store, broken), delegate, model_id="my-model"))
    assert (result.status, result.reason.code) == (Status.FAILED, ReasonCode.MODEL_FORMAT), result
    assert result.reason.text.startswith(named)


def test_unknown_delegate_fails_naming_the_known_ones(agent, stored):
    result = agent.run(job(stored, "litret"))
    assert result.status is Status.FAILED
    assert "did you mean 'litert'" in result.reason.text


def test_input_rules_reshape_and_are_checked(agent, stored):
    resized = measured(
        agent, job(stored, inputs={"image": InputSpec(shape=(2, 8, 8, 16), low=0.0, high=1.0)})
    )
    assert resized.measurement.accuracy.verdict == "pass"
    unknown = agent.run(job(stored, inputs={"imgae": InputSpec(seed=1)}))
    assert (unknown.status, unknown.reason.code) == (Status.UNSUPPORTED, ReasonCode.NEEDS_INPUT_SPEC)
    assert "it has ['image']" in unknown.reason.text


def test_own_inputs_are_what_every_process_is_fed(agent, stored, tmp_path):
    samples = np.linspace(-1, 1, 5 * 8 * 8 * 16, dtype=np.float32).reshape(5, 1, 8, 8, 16)
    np.save(tmp_path / "own.npy", samples)
    sha256, size = put_model(agent.store, tmp_path / "own.npy")
    spec = InputSpec(shape=(1, 8, 8, 16), data=InputData(sha256=sha256, size_bytes=size))
    asked = job(stored, inputs={"image": spec})
    asked = asked.model_copy(update={"plan": asked.plan.model_copy(update={"input_sets": 5})})
    found = measured(agent, asked)
    assert found.measurement.accuracy.verdict == "pass"
    processes = samples_of(agent, found)
    digest = hashlib.sha256()
    for sample in samples:
        digest.update(f"{sample.dtype.str}{sample.shape}".encode() + sample.tobytes())
    assert {process.facts["pool_sha256"] for process in processes} == {digest.hexdigest()}
    assert {process.input_sets for process in processes if process.cache == "warm"} == {5}


@pytest.mark.slow
def test_operators_on_the_cpu_that_an_option_forbids_are_named_in_one_line(agent, stored):
    forbidding = {"require_full_delegation": True, "first_delegate_node_index": 1}
    result = agent.run(job(stored, "gpu", opencl_device(agent), delegate_options=forbidding))
    assert (result.status, result.reason.code) == (Status.UNSUPPORTED, ReasonCode.NOT_DELEGATED)
    assert " (operator 0): " in result.reason.text
    assert result.reason.text.endswith(" operators to the CPU, which require_full_delegation forbids")
    assert "\n" not in result.reason.text
    # What would have to be changed is what a user wants to know now.
    assert result.measurement.advice.to_change > 0


@pytest.mark.slow
def test_a_second_agent_judges_by_the_references_of_the_first_and_makes_none(
    start_agent, stored, tmp_path, monkeypatch
):
    monkeypatch.setenv(known.VARIABLE, str(tmp_path / "known"))  # nobody else has made its references
    agent = start_agent()
    first = measured(agent, job(stored))
    eventually(lambda: list((agent.state / "work").iterdir()) == [], "a work folder was left")
    made = {path.stem: path.read_bytes() for path in (agent.state / "references").rglob("*.npz")}
    assert [record.kind for record in first.references] == ["reference", "xnnpack", "moved"]
    for record in first.references:
        assert hashlib.sha256(made[record.key]).hexdigest() == record.sha256
        assert artifact_path(agent.store, record.sha256).stat().st_size == record.size_bytes

    monkeypatch.setenv(known.VARIABLE, str(tmp_path / "known to the other"))
    other = start_agent(state="other")
    second = measured(other, job(stored, references=first.references))
    assert second.references == ()
    assert {line.what for line in runlog.read(other.state / "runs.log")} == {"measure", "attempt"}
    assert second.measurement.accuracy == first.measurement.accuracy
    assert second.measurement.accuracy.verdict == "pass"


def test_agent_introduces_its_devices(tmp_path):
    agent = EmbeddedAgent(tmp_path)
    hello = agent.hello
    agent.close()
    cpu = next(device for device in hello.devices if device.device_id == "host-cpu")
    assert "cpu" in cpu.delegates
    assert cpu.exclusion_group == "host-cpu"
    assert all(d.exclusion_group == "host-cpu" for d in hello.devices if d.kind == "cpu")
    assert len({device.device_id for device in hello.devices}) == len(hello.devices)
    for device in hello.devices:
        assert len(device.environment_id) == 12
        assert {"cpu", "kernel", "measuring"} <= set(device.environment)
        assert all("runtime" in device.environment_of(kind, {}) for kind in device.delegates)
