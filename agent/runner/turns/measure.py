"""The processes that make a reference, start cold, or are timed."""

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from agent.attempt.files import AttemptFile, OutputFact, ProcessReport, outputs_path, report_path
from agent.runner.advice import advice_of
from agent.runner.channel import Answer, Channel, ClosedError, Order, SliceTimes
from agent.runner.failures import delegation_of, failure_of
from agent.runner.judge.stages import DEVICE_BUSY
from agent.runner.opening import input_rules, opener_of, subject_of
from agent.runner.probe.environment import environment_of_failed, reported_environment
from agent.runner.tunings import given_choices, is_cold
from agent.wire.bounded import SHORTEST_RUN_S
from agent.wire.measurement import ProcessSamples
from agent.wire.plan import MeasurePlan
from runtime.delegates.descriptor import CHOICES
from runtime.delegates.registry import delegate_descriptor
from runtime.errors import FarmRuntimeError
from runtime.measure.benchmark import ProcessResult, Session, start_cold
from runtime.measure.loading import Opener
from runtime.measure.outputs import save_outputs
from runtime.measure.reference import ReferenceKind, make_reference, save_reference
from runtime.measure.warm_up import WarmUp


def reference_process(job_file: Path, kind: str, target: Path) -> None:
    """Make the reference of one kind and store it as `target`; a failure ends the process."""
    attempt = AttemptFile.model_validate_json(job_file.read_bytes())
    job = attempt.job
    rules = input_rules(attempt)
    save_reference(target, make_reference(attempt.model_path, job.model_sha256, rules, ReferenceKind(kind)))


def measure_process(job_file: Path, folder: Path, index: int, tuning: int, descriptor: int) -> None:
    """Start or measure once, in this process, turn by turn as it is told; send samples and report.

    A process that begins a tuning is a cold one: it finds empty caches, and its outputs are judged. This
    returns early where the deciding process has ended.
    """
    attempt = AttemptFile.model_validate_json(job_file.read_bytes())
    channel = Channel.of_descriptor(descriptor)
    with suppress(ClosedError):
        try:
            delegate = delegate_descriptor(attempt.job.delegate_kind)
            # Loads the delegate's modules, which is no part of `init`: before the first turn, so that the
            # processes of a block do it at the same time.
            opener = opener_of(attempt, given_choices(folder, index, tuning, attempt.job, delegate))
            channel.send(Answer(loaded=True))
            channel.receive(Order)
            report = _measured(attempt, folder, index, tuning, opener, channel)
        except (FarmRuntimeError, MemoryError) as error:
            kind, failure = attempt.job.delegate_kind, failure_of(error, attempt)
            if failure.delegation is not None:
                # Where there is a delegation report, these options were parsed before. With the requirement,
                # the plan would fail again instead of telling what to change.
                options = {**opener_of(attempt, {}).options, "require_full_delegation": False}
                advice = advice_of(attempt.model_path, kind, options)
                failure = failure.model_copy(update={"advice": advice})
            environment = environment_of_failed(attempt.device, kind)
            report = ProcessReport(failure=failure, environment=environment)
        channel.send(Answer(report=report))


def _measured(
    attempt: AttemptFile, folder: Path, index: int, tuning: int, opener: Opener, channel: Channel
) -> ProcessReport:
    job = attempt.job

    def on_phase(phase: str) -> None:
        channel.send(Answer(phase=phase))

    with told(on_phase):
        if is_cold(index, job.plan):
            # The first one finds the warm-up of all processes of the cell.
            warm_up = _warm_up(job.plan) if index == 0 else None
            result = start_cold(subject_of(attempt, opener), on_phase, warm_up)
        else:
            result = _timed(attempt, folder, opener, on_phase, channel)
    save_outputs(outputs_path(folder, index), result.outputs)
    settings = dict(result.settings)
    choices = settings.pop(CHOICES, None)
    cache: Literal["cold", "warm"] = "cold" if is_cold(index, job.plan) else "warm"
    return ProcessReport(
        samples=_samples(result, index, cache, tuning),
        delegation=delegation_of(result.delegation),
        settings=settings,
        # Behind everything that is timed: it plans the model anew, some tenths of a second.
        advice=advice_of(attempt.model_path, job.delegate_kind, opener.options) if index == 0 else None,
        choices=choices if delegate_descriptor(job.delegate_kind).tunes else None,
        output_facts=tuple(map(OutputFact.like, result.output_facts)),
        last_set=result.last_set,
        unseen={
            **result.unseen,
            **result.transfer.missing,
            **({DEVICE_BUSY: why} if (why := result.device.why_not) else {}),
        },
        # After everything is timed: it loads what the measured program may not have loaded.
        environment=reported_environment(attempt.device, job.delegate_kind),
    )


def _timed(
    attempt: AttemptFile, folder: Path, opener: Opener, on_phase: Callable[[str], None], channel: Channel
) -> ProcessResult:
    """Open the model and time the slices that are asked for, until the turn that ends the process."""
    session = Session(subject_of(attempt, opener), frozen_warmup(folder), on_phase)
    on_phase("invoke")
    channel.send(Answer(run_ns=session.run_ns))
    while (order := channel.receive(Order)).do == "slice":
        times = session.slice(order.runs)
        sent = SliceTimes(invoke_ns=tuple(times.invoke_ns.tolist()), start_ns=tuple(times.start_ns.tolist()))
        channel.send(Answer(times=sent))
    return session.end()


def _warm_up(plan: MeasurePlan) -> WarmUp:
    planned = WarmUp(plan.warmup_runs, plan.warmup_seconds)
    most = max(plan.warmup_runs, math.ceil(planned.longest_s / SHORTEST_RUN_S))
    return replace(planned, most_runs=most)


def frozen_warmup(folder: Path) -> int:
    """Return the runs of every timed process's warm-up, as the first cold process found them."""
    report = ProcessReport.model_validate_json(report_path(folder, 0).read_bytes())
    assert report.samples is not None
    return int(report.samples.facts["warmup_runs"])


def _samples(
    result: ProcessResult, index: int, cache: Literal["cold", "warm"], tuning: int
) -> ProcessSamples:
    """Return the samples of a process; it has sent those of the timed invokes at the end of each slice."""
    return ProcessSamples.like(
        result,
        index=index,
        tuning=tuning,
        cache=cache,
        invoke_ns=(),
        start_ns=(),
        device_busy_ns=result.device.busy_ns,
        queue_delay_ns=result.device.queue_ns,
        transfer_ns=result.transfer.times_ns,
        transfer_bytes=result.transfer.sizes,
    )


class _Told(logging.Handler):
    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())


@contextmanager
def told(tell: Callable[[str], None]) -> Iterator[None]:
    """Within the block every warning of a delegate's loggers is also handed to `tell`.

    Which operators stay on the CPU, of which the interpreter warns, is in the result and is no phase.
    """
    handler, logger = _Told(tell), logging.getLogger("runtime.delegates")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
