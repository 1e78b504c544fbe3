"""Derives an attempt's result from its processes' reports: judges, sums up, rejects wrong measurements."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from agent.attempt.files import AttemptFile, Failure, ProcessReport, RunnerResult, outputs_path
from agent.runner.measure import load_outputs
from agent.wire.messages import (
    Accuracy,
    Device,
    LabelledScore,
    Latency,
    Measurement,
    ProcessSamples,
    Reason,
    ReasonCode,
    Status,
)
from runtime.delegates.cpu import CPU
from runtime.delegates.registry import delegate_descriptor
from runtime.errors import FarmRuntimeError
from runtime.model.reader import read_model
from runtime.tools import plausibility
from runtime.tools.agreement import (
    Arithmetic,
    Judgement,
    OutputFacts,
    Rule,
    arithmetic_of,
    judge,
    rule_for,
    worst,
)
from runtime.tools.reference import Reference, ReferenceKind
from runtime.tools.samples import FLOORS, ProcessTimes, summarise


@dataclass(frozen=True, slots=True)
class _ModelFacts:
    """What the verdict reads of the model; `shortest_ms` is the physical bound on its latency."""

    arithmetic: Arithmetic
    shortest_ms: float


def concluded(
    attempt: AttemptFile, reports: Sequence[ProcessReport], folder: Path, reference: Reference | str
) -> RunnerResult:
    """The result of processes that all measured. `reference`: outputs, or why there are none.

    A wrong output and an implausible time are failures that keep what was measured as evidence.
    """
    facts = _model_facts(attempt, reports[0])
    accuracy = _accuracy(attempt, reports, folder, reference, facts)
    measurement = _summed_up(attempt, reports, accuracy)
    if accuracy.verdict == "fail":
        reason = Reason(code=ReasonCode.WRONG_OUTPUT, text=f"wrong output: {accuracy.note} ({accuracy.rule})")
        return RunnerResult(status=Status.FAILED, reason=reason, measurement=measurement)
    if isinstance(facts, _ModelFacts):
        why = plausibility.implausible(measurement.latency_ms.p50, facts.shortest_ms)
        if why is not None:
            struck = measurement.model_copy(update={"latency_ms": _no_latency(why)})
            reason = Reason(code=ReasonCode.IMPLAUSIBLE, text=why)
            return RunnerResult(status=Status.FAILED, reason=reason, measurement=struck)
    return RunnerResult(status=Status.DONE, reason=None, measurement=measurement)


def scored(result: RunnerResult, score: LabelledScore) -> RunnerResult:
    """The result with what the labelled data says. Too few right answers make it a wrong output."""
    if result.measurement is None:
        return result
    measurement = result.measurement.model_copy(update={"labelled": score})
    result = result.model_copy(update={"measurement": measurement})
    if score.verdict != "fail" or result.status is not Status.DONE:
        return result
    said = f"{score.right} of {score.samples} right ({score.share:.4g})"
    text = f"labelled data, {score.metric}: {said}; at least {score.at_least:g} was asked for"
    reason = Reason(code=ReasonCode.WRONG_OUTPUT, text=text)
    return result.model_copy(update={"status": Status.FAILED, "reason": reason})


def not_measured(failure: Failure) -> RunnerResult:
    """A failure as a result; a delegation report comes along in a measurement without figures."""
    if failure.delegation is None:
        return RunnerResult(status=failure.status, reason=failure.reason)
    why = f"not measured: {failure.reason.code.value}"
    measurement = Measurement(
        latency_ms=_no_latency(why),
        samples=0,
        memory_peak_bytes=0,
        accuracy=_unjudged(None, why),
        delegation=failure.delegation,
        settings={},
    )
    return RunnerResult(status=failure.status, reason=failure.reason, measurement=measurement)


def _model_facts(attempt: AttemptFile, report: ProcessReport) -> _ModelFacts | str:
    """Read the model; the reason where our reader cannot, which does not stop a peer from running it."""
    try:
        model = read_model(Path(attempt.model_path).read_bytes())
    except FarmRuntimeError as error:
        return f"the model's arithmetic is not known: {error}"
    arithmetic = arithmetic_of(model)
    precision = report.settings.get("precision", "unknown")
    bound = plausibility.shortest_ms(model, _silicon(attempt.device), arithmetic, precision)
    return _ModelFacts(arithmetic, bound)


def _silicon(device: Device) -> plausibility.Device:
    if device.kind == "cpu":
        return plausibility.Device.cpus(len(os.sched_getaffinity(0)))
    units, clock = (int(device.facts.get(f"opencl_{name}", "0")) for name in ("compute_units", "clock_mhz"))
    return plausibility.Device.opencl_gpu(units, clock)


def _accuracy(
    attempt: AttemptFile,
    reports: Sequence[ProcessReport],
    folder: Path,
    reference: Reference | str,
    facts: _ModelFacts | str,
) -> Accuracy:
    """The verdict over all processes; null with the reason where there is nothing to compare with."""
    if isinstance(reference, str):
        return _unjudged(None, reference)
    if reference.kind is ReferenceKind.CPU and attempt.job.delegate_kind == CPU:
        return _unjudged(reference.label, "cpu is its own reference here; install ai-edge-litert to judge it")
    if isinstance(facts, str):
        return _unjudged(reference.label, facts)
    descriptor = delegate_descriptor(attempt.job.delegate_kind)
    rule = rule_for(
        facts.arithmetic,
        integer_path=descriptor.integer_path or reports[0].settings.get("integer_path") == "yes",
        precision=reports[0].settings.get("precision", "fp32"),
        exact_reference=reference.kind is ReferenceKind.REFERENCE_KERNELS,
    )
    judgement = worst([_judged(reference, report, folder, rule) for report in reports])
    return Accuracy(reference=reference.label, **asdict(judgement))


def _judged(reference: Reference, report: ProcessReport, folder: Path, rule: Rule) -> Judgement:
    """One process: the outputs of every input set, of the first invoke and of the last timed one."""
    assert report.samples is not None
    facts = [OutputFacts(f.name, f.scale, f.zero_point) for f in report.output_facts]
    # The first and the last timed run too: a delegate that returns cached outputs once it is timed is found.
    outputs = load_outputs(outputs_path(folder, report.samples.index), len(facts))
    expected = (*reference.outputs, reference.outputs[0], reference.outputs[report.last_set])
    return judge(expected, outputs, facts, rule)


def _summed_up(attempt: AttemptFile, reports: Sequence[ProcessReport], accuracy: Accuracy) -> Measurement:
    """The cell's figures from all processes. Memory is the largest growth of any of them."""
    processes = [report.samples for report in reports if report.samples is not None]
    latency = summarise([ProcessTimes(p.cache, p.init_ns, p.first_ns, p.invoke_ns) for p in processes])
    cpus = sorted(os.sched_getaffinity(0))
    settings = {
        **reports[0].settings,
        "threads": str(len(cpus)),
        "cpus": ",".join(map(str, cpus)),
        "processes": str(len(processes)),
        "pool_sha256": processes[0].facts.get("pool_sha256", ""),
        "plan": attempt.job.plan.model_dump_json(),
        # The farm shows the floors beside the figures and may not import them: they are part of the result.
        "sample_floors": json.dumps(FLOORS),
    }
    return Measurement(
        latency_ms=Latency(**asdict(latency)),
        samples=sum(len(p.invoke_ns) for p in processes),
        memory_peak_bytes=max(p.memory_peak_bytes for p in processes),
        accuracy=accuracy,
        delegation=reports[0].delegation,
        settings=settings,
        warnings=_warnings(processes),
    )


def _warnings(processes: Sequence[ProcessSamples]) -> tuple[str, ...]:
    """Every process's flags, with the process that raised them."""
    return tuple(f"process {p.index + 1}: {flag}" for p in processes for flag in p.flags)


def _no_latency(why: str) -> Latency:
    """A summary without figures, each with the reason."""
    names = [name for name in Latency.model_fields if name != "missing"]
    return Latency.model_validate({**dict.fromkeys(names), "missing": dict.fromkeys(names, why)})


def _unjudged(reference: str | None, note: str) -> Accuracy:
    return Accuracy(reference=reference, max_abs=None, rel_l2=None, cosine=None, verdict=None, note=note)
