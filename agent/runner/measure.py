"""The processes that touch the model: for references, the cold one, and the measured ones."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from agent.attempt import runlog
from agent.attempt.files import (
    AttemptFile,
    Failure,
    OutputFact,
    ProcessReport,
    outputs_path,
    report_path,
    write_atomically,
    write_progress,
)
from agent.runner.host import host_cpus
from agent.runner.progress import told
from agent.runner.reported import environment_of_failed, reported_environment
from agent.runner.stages import DEVICE_BUSY
from agent.runner.tunings import given_choices, is_cold, planned_tunings
from agent.runner.watch import Watch
from agent.wire.bounded import MAX_FALLBACKS
from agent.wire.measurement import Delegation, Fallback, ProcessSamples
from agent.wire.messages import InputSpec, MeasurePlan, Reason, ReasonCode, Status
from runtime.delegates.descriptor import CHOICES
from runtime.delegates.registry import delegate_descriptor
from runtime.errors import (
    DeadlineError,
    DelegateError,
    DeviceError,
    DeviceMemoryError,
    FallbackForbiddenError,
    FarmRuntimeError,
    ModelFormatError,
    NoDeviceError,
    OutOfMemoryError,
    UnsupportedOperatorError,
    UnsupportedPrecisionError,
)
from runtime.tools.benchmark import ProcessResult, measure, start_cold
from runtime.tools.inputs import InputRule, InputSpecNeededError
from runtime.tools.loading import Opener
from runtime.tools.loop_plan import LoopPlan
from runtime.tools.outputs import save_outputs
from runtime.tools.reference import ReferenceKind, make_reference, save_reference
from runtime.tools.samples import FLOORS

COLD = 0
"""The block of the processes that find empty program caches; those of the others are timed."""


def reference_process(job_file: Path, kind: str, target: Path) -> None:
    """Make the reference of one kind and store it as `target`; a failure ends the process."""
    attempt = AttemptFile.model_validate_json(job_file.read_bytes())
    job = attempt.job
    _log(attempt, "start", "reference")
    reference = make_reference(
        attempt.model_path, job.model_sha256, input_rules(job.inputs), ReferenceKind(kind)
    )
    save_reference(target, reference)
    _log(attempt, "end", "reference")


def measure_process(job_file: Path, folder: Path, index: int, tuning: int) -> None:
    """Start or measure once, in this process, and write `process-<index>.json`: samples or the failure.

    A process that begins a tuning is a cold one: it finds empty caches, and its outputs are judged.
    """
    attempt = AttemptFile.model_validate_json(job_file.read_bytes())
    _log(attempt, "start", "measure")
    try:
        report = _measured(attempt, folder, index, tuning)
    except (FarmRuntimeError, MemoryError) as error:
        environment = environment_of_failed(attempt.device, attempt.job.delegate_kind)
        report = ProcessReport(failure=failure_of(error, attempt), environment=environment)
    write_atomically(report_path(folder, index), report.model_dump_json().encode())
    _log(attempt, "end", "measure")


def input_rules(inputs: Mapping[str, InputSpec]) -> dict[str, InputRule]:
    """The wire's input specifications as the runtime expects them."""
    return {name: InputRule(spec.shape, spec.seed, spec.low, spec.high) for name, spec in inputs.items()}


def delegate_options(attempt: AttemptFile, threads: int) -> dict[str, str | int | float | bool]:
    """Options for the delegate: the job's, those set from the device, and the threads in force.

    CPU affinity enforces `threads` for every delegate (`agent.runner.environment`); one that declares the
    option receives the count, so that its pool is no larger. Raises `DelegateError` as `delegate_descriptor`.
    """
    job = attempt.job
    descriptor = delegate_descriptor(job.delegate_kind)
    options = {**descriptor.device_options(attempt.device), **job.delegate_options}
    if descriptor.takes_threads:
        options["threads"] = threads
    return options


def options_of_first_tuning(attempt: AttemptFile, folder: Path) -> dict[str, str | int | float | bool]:
    """Options for a pass that follows the timed processes: those of such a process of the first tuning.

    Raises `DelegateError` as `delegate_options`.
    """
    job, timed = attempt.job, COLD + 1
    choices = given_choices(folder, timed, 0, job, delegate_descriptor(job.delegate_kind))
    return {**delegate_options(attempt, len(os.sched_getaffinity(0))), **choices}


def failure_of(error: Exception, attempt: AttemptFile) -> Failure:
    """Return the status and the reason that an error gives the attempt's cell.

    The store's path in the error's text, which means nothing to a user, becomes the model's id.
    """
    kind = attempt.job.delegate_kind
    text = (str(error) or type(error).__name__).replace(attempt.model_path, attempt.job.model_id)
    delegation = delegation_of(getattr(error, "delegation", None))
    if isinstance(error, FallbackForbiddenError):
        text = "require_full_delegation forbids that"  # its own text is LiteRT's report of every operator
    if delegation is not None and delegation.fallbacks:
        text = f"{_fallback_text(kind, delegation)}; {text}"
    status, code = _meaning(error, delegation)
    return Failure(status=status, reason=Reason(code=code, text=text), delegation=delegation)


def _fallback_text(kind: str, delegation: Delegation) -> str:
    """Return how many operators stay on the CPU, and the first of them: the report has all."""
    left, first = delegation.total_ops - delegation.delegated_ops, delegation.fallbacks[0]
    return (
        f"{kind}: {left} of {delegation.total_ops} operators stay on the CPU, the first: operator "
        f"{first.index} {first.op}: {first.reason}"
    )


def _meaning(error: Exception, delegation: Delegation | None) -> tuple[Status, ReasonCode]:
    if delegation is not None and delegation.delegated_ops == 0:
        return Status.UNSUPPORTED, ReasonCode.NOT_DELEGATED
    if isinstance(error, DelegateError) and isinstance(error.__cause__, ImportError):
        return Status.UNSUPPORTED, ReasonCode.DELEGATE_MISSING
    for kind, status, code in _MEANINGS:
        if isinstance(error, kind):
            return status, code
    return Status.FAILED, ReasonCode.RUNNER_ERROR


_MEANINGS: tuple[tuple[type[Exception], Status, ReasonCode], ...] = (
    (MemoryError, Status.FAILED, ReasonCode.OUT_OF_MEMORY),
    (OutOfMemoryError, Status.FAILED, ReasonCode.OUT_OF_MEMORY),
    (UnsupportedOperatorError, Status.UNSUPPORTED, ReasonCode.UNSUPPORTED_OPERATOR),
    (FallbackForbiddenError, Status.UNSUPPORTED, ReasonCode.NOT_DELEGATED),
    (UnsupportedPrecisionError, Status.UNSUPPORTED, ReasonCode.UNSUPPORTED_PRECISION),
    (InputSpecNeededError, Status.UNSUPPORTED, ReasonCode.NEEDS_INPUT_SPEC),
    (ModelFormatError, Status.FAILED, ReasonCode.MODEL_FORMAT),
    (DeadlineError, Status.FAILED, ReasonCode.TIMEOUT),
    (NoDeviceError, Status.UNSUPPORTED, ReasonCode.NO_DEVICE),
    (DeviceMemoryError, Status.FAILED, ReasonCode.OUT_OF_MEMORY),
    (DeviceError, Status.FAILED, ReasonCode.DEVICE_LOST),
)


def delegation_of(report: Any | None) -> Delegation | None:
    """The interpreter's delegation report on the wire."""
    if report is None:
        return None
    return Delegation(
        status=report.status,
        delegated_ops=report.delegated_ops,
        total_ops=report.total_ops,
        partitions=report.partitions,
        fallbacks=tuple(
            Fallback(index=f.index, op=f.op, reason=f.reason) for f in report.fallbacks[:MAX_FALLBACKS]
        ),
    )


def _measured(attempt: AttemptFile, folder: Path, index: int, tuning: int) -> ProcessReport:
    job = attempt.job
    descriptor = delegate_descriptor(job.delegate_kind)
    who = f"process {index + 1} of {job.plan.processes + planned_tunings(job, descriptor)}"
    write_progress(folder, f"{who}: start")
    options = {
        **delegate_options(attempt, len(os.sched_getaffinity(0))),
        **given_choices(folder, index, tuning, job, descriptor),
    }
    opener = Opener.prepare(job.delegate_kind, options)

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


def _log(attempt: AttemptFile, event: runlog.Event, what: str) -> None:
    runlog.append(Path(attempt.runs_log), event, attempt.job.attempt_id, attempt.device.exclusion_group, what)
