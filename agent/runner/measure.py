"""The processes that make a reference, start cold, or are timed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from agent.attempt.files import (
    AttemptFile,
    OutputFact,
    ProcessReport,
    outputs_path,
    report_path,
    write_atomically,
    write_progress,
)
from agent.runner.failures import delegation_of, failure_of
from agent.runner.host import host_cpus
from agent.runner.opening import input_rules, opener_of
from agent.runner.process_frame import logged
from agent.runner.progress import told
from agent.runner.reported import environment_of_failed, reported_environment
from agent.runner.stages import DEVICE_BUSY
from agent.runner.tunings import given_choices, is_cold, planned_tunings
from agent.runner.watch import Watch
from agent.wire.measurement import ProcessSamples
from agent.wire.messages import MeasurePlan
from runtime.delegates.descriptor import CHOICES
from runtime.delegates.registry import delegate_descriptor
from runtime.errors import FarmRuntimeError
from runtime.tools.benchmark import ProcessResult, measure, start_cold
from runtime.tools.loop_plan import LoopPlan
from runtime.tools.outputs import save_outputs
from runtime.tools.reference import ReferenceKind, make_reference, save_reference
from runtime.tools.samples import FLOORS


def reference_process(job_file: Path, kind: str, target: Path) -> None:
    """Make the reference of one kind and store it as `target`; a failure ends the process."""
    attempt = AttemptFile.model_validate_json(job_file.read_bytes())
    job = attempt.job
    with logged(attempt, "reference"):
        rules = input_rules(job.inputs)
        save_reference(
            target, make_reference(attempt.model_path, job.model_sha256, rules, ReferenceKind(kind))
        )


def measure_process(job_file: Path, folder: Path, index: int, tuning: int) -> None:
    """Start or measure once, in this process, and write `process-<index>.json`: samples or the failure.

    A process that begins a tuning is a cold one: it finds empty caches, and its outputs are judged.
    """
    attempt = AttemptFile.model_validate_json(job_file.read_bytes())
    with logged(attempt, "measure"):
        try:
            report = _measured(attempt, folder, index, tuning)
        except (FarmRuntimeError, MemoryError) as error:
            environment = environment_of_failed(attempt.device, attempt.job.delegate_kind)
            report = ProcessReport(failure=failure_of(error, attempt), environment=environment)
        write_atomically(report_path(folder, index), report.model_dump_json().encode())


def _measured(attempt: AttemptFile, folder: Path, index: int, tuning: int) -> ProcessReport:
    job = attempt.job
    descriptor = delegate_descriptor(job.delegate_kind)
    who = f"process {index + 1} of {job.plan.processes + planned_tunings(job, descriptor)}"
    write_progress(folder, f"{who}: start")
    opener = opener_of(attempt, given_choices(folder, index, tuning, job, descriptor))

    def on_phase(phase: str) -> None:
        write_progress(folder, f"{who}: {phase}")

    watch = Watch(host_cpus(), attempt.device)
    rules, model = input_rules(job.inputs), attempt.model_path
    with told(on_phase):
        if is_cold(index, job.plan):
            # The first one finds the warm-up of all processes of the cell.
            calibrated = loop_plan(job.plan) if index == 0 else None
            result = start_cold(opener, model, job.model_sha256, rules, on_phase, calibrated)
        else:
            plan = loop_plan(job.plan)
            warmup_runs = frozen_warmup(folder)
            result = measure(opener, model, job.model_sha256, plan, rules, on_phase, watch, warmup_runs)
    save_outputs(outputs_path(folder, index), result.outputs)
    settings = dict(result.settings)
    choices = settings.pop(CHOICES, None)
    cache: Literal["cold", "warm"] = "cold" if is_cold(index, job.plan) else "warm"
    return ProcessReport(
        samples=_samples(result, index, cache, tuning, watch.facts()),
        delegation=delegation_of(result.delegation),
        settings=settings,
        choices=choices if descriptor.tunes else None,
        output_facts=tuple(
            OutputFact(name=f.name, scale=f.scale, zero_point=f.zero_point) for f in result.output_facts
        ),
        last_set=result.last_set,
        unseen={**result.unseen, **({DEVICE_BUSY: why} if (why := result.device.why_not) else {})},
        # After everything is timed: it loads what the measured program may not have loaded.
        environment=reported_environment(attempt.device, job.delegate_kind),
        saw=watch.saw(),
    )


def loop_plan(plan: MeasurePlan) -> LoopPlan:
    """Counts of one process. Even a slow model gets enough runs in all processes together for p50."""
    return LoopPlan(
        warmup_runs=plan.warmup_runs,
        warmup_seconds=plan.warmup_seconds,
        min_runs=plan.min_runs,
        max_runs=plan.max_runs,
        min_seconds=plan.min_seconds,
        max_seconds=plan.max_seconds,
        floor_runs=min(plan.max_runs, math.ceil(FLOORS["p50"] / plan.processes)),
        # A look at a model is to take the time that it was planned for.
        seeks_precision=plan.level != "quick",
    )


def frozen_warmup(folder: Path) -> int:
    """Return the runs of every timed process's warm-up, as the first cold process found them."""
    report = ProcessReport.model_validate_json(report_path(folder, 0).read_bytes())
    assert report.samples is not None
    return int(report.samples.facts["warmup_runs"])


def _samples(
    result: ProcessResult,
    index: int,
    cache: Literal["cold", "warm"],
    tuning: int,
    counted: Mapping[str, str],
) -> ProcessSamples:
    return ProcessSamples(
        index=index,
        tuning=tuning,
        cache=cache,
        init_ns=result.init_ns,
        first_ns=result.first_ns,
        warmup_ns=result.warmup_ns,
        invoke_ns=result.invoke_ns,
        start_ns=result.start_ns,
        input_sets=result.input_sets,
        memory_peak_bytes=result.memory_peak_bytes,
        memory_before_bytes=result.memory_before_bytes,
        flags=result.flags,
        facts={**result.facts, **counted},
        stages_ns=dict(result.stages_ns),
        memory_bytes=dict(result.memory_bytes),
        device_busy_ns=result.device.busy_ns,
        queue_delay_ns=result.device.queue_ns,
    )
