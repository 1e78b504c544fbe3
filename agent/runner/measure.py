"""The processes that touch the model: for references, the cold one, and the measured ones."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
from agent.runner.progress import told
from agent.wire.bounded import MAX_FALLBACKS
from agent.wire.messages import (
    Delegation,
    Fallback,
    InputSpec,
    MeasurePlan,
    ProcessSamples,
    Reason,
    ReasonCode,
    Status,
)
from runtime.delegates.registry import delegate_descriptor
from runtime.errors import (
    DelegateError,
    DeviceError,
    FarmRuntimeError,
    ModelFormatError,
    OutOfMemoryError,
    UnsupportedOperatorError,
    UnsupportedPrecisionError,
)
from runtime.tools.benchmark import LoopPlan, ProcessResult, measure, start_cold
from runtime.tools.inputs import InputRule, InputSpecNeededError
from runtime.tools.loading import Opener
from runtime.tools.outputs import save_outputs
from runtime.tools.reference import ReferenceKind, make_reference, save_reference
from runtime.tools.samples import FLOORS

COLD = 0
"""Index of the process that runs first, with empty program caches; the others are timed."""

_NAMED_FALLBACKS = 5
"""How many operators a reason names before it counts the others. Chosen so that a reason stays one line of a
page; the whole list is in the delegation report."""


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


def measure_process(job_file: Path, folder: Path, index: int) -> None:
    """Start or measure once, in this process, and write `process-<index>.json`: samples or the failure.

    Process 0 is the cold one: it finds empty caches, and its outputs are judged.
    """
    attempt = AttemptFile.model_validate_json(job_file.read_bytes())
    _log(attempt, "start", "measure")
    try:
        report = _measured(attempt, folder, index)
    except (FarmRuntimeError, MemoryError) as error:
        report = ProcessReport(failure=failure_of(error, attempt))
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


def failure_of(error: Exception, attempt: AttemptFile) -> Failure:
    """Return the status and the reason that an error gives the attempt's cell.

    The store's path in the error's text, which means nothing to a user, becomes the model's id.
    """
    kind = attempt.job.delegate_kind
    text = (str(error) or type(error).__name__).replace(attempt.model_path, attempt.job.model_id)
    delegation = delegation_of(getattr(error, "delegation", None))
    if delegation is not None:
        text += _fallback_text(kind, delegation.fallbacks)
    status, code = _meaning(error, delegation)
    return Failure(status=status, reason=Reason(code=code, text=text), delegation=delegation)


def _fallback_text(kind: str, fallbacks: Sequence[Fallback]) -> str:
    """Return the first fallback of each of a few operators, and the number of the others."""
    first: dict[str, Fallback] = {}
    for fallback in fallbacks:
        first.setdefault(fallback.op, fallback)
    named = list(first.values())[:_NAMED_FALLBACKS]
    text = "".join(f"; {kind}: operator {f.index} {f.op}: {f.reason}" for f in named)
    more = len(fallbacks) - len(named)
    return f"{text}; and {more} more" if more else text


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
    (UnsupportedPrecisionError, Status.UNSUPPORTED, ReasonCode.UNSUPPORTED_PRECISION),
    (InputSpecNeededError, Status.UNSUPPORTED, ReasonCode.NEEDS_INPUT_SPEC),
    (ModelFormatError, Status.FAILED, ReasonCode.MODEL_FORMAT),
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


def _measured(attempt: AttemptFile, folder: Path, index: int) -> ProcessReport:
    job = attempt.job
    who = f"process {index + 1} of {job.plan.processes + 1}"
    write_progress(folder, f"{who}: start")
    opener = Opener.prepare(job.delegate_kind, delegate_options(attempt, len(os.sched_getaffinity(0))))

    def on_phase(phase: str) -> None:
        write_progress(folder, f"{who}: {phase}")

    rules, model = input_rules(job.inputs), attempt.model_path
    with told(on_phase):
        if index == COLD:
            result = start_cold(opener, model, job.model_sha256, rules, on_phase)
        else:
            result = measure(opener, model, job.model_sha256, loop_plan(job.plan), rules, on_phase)
    save_outputs(outputs_path(folder, index), result.outputs)
    return ProcessReport(
        samples=_samples(result, index),
        delegation=delegation_of(result.delegation),
        settings=dict(result.settings),
        output_facts=tuple(
            OutputFact(name=f.name, scale=f.scale, zero_point=f.zero_point) for f in result.output_facts
        ),
        last_set=result.last_set,
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
    )


def _samples(result: ProcessResult, index: int) -> ProcessSamples:
    return ProcessSamples(
        index=index,
        cache="cold" if index == COLD else "warm",
        init_ns=result.init_ns,
        first_ns=result.first_ns,
        warmup_ns=result.warmup_ns,
        invoke_ns=result.invoke_ns,
        memory_peak_bytes=result.memory_peak_bytes,
        memory_before_bytes=result.memory_before_bytes,
        flags=result.flags,
        facts=dict(result.facts),
    )


def _log(attempt: AttemptFile, event: runlog.Event, what: str) -> None:
    runlog.append(Path(attempt.runs_log), event, attempt.job.attempt_id, attempt.device.exclusion_group, what)
