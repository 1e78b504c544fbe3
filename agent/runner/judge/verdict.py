"""Derives an attempt's result from its processes' reports: judges, sums up, rejects wrong measurements."""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack

from agent.attempt.files import AttemptFile, Failure, ProcessReport, RunnerResult, caches_folder
from agent.processes.left_files import bytes_left
from agent.runner.judge import stages
from agent.runner.judge.accuracy import JudgedOutputs, ModelKind, OutputsError, judged_outputs, unjudged
from agent.runner.judge.blocks import time_units
from agent.runner.judge.references import References
from agent.runner.probe.host import installed
from agent.runner.tunings import by_tuning, tunings
from agent.runner.tunings import timed as timed_reports
from agent.wire import measurement as wire
from agent.wire.labelled import LabelledScore
from agent.wire.messages import Device, Reason, ReasonCode, Status
from runtime.common.statistics import estimate
from runtime.common.system import usable_cpus
from runtime.delegates.descriptor import KEPT, RECORDING
from runtime.errors import FarmRuntimeError
from runtime.judge import plausibility
from runtime.judge.kinds import UnknownOutputError, output_kinds
from runtime.judge.rules import arithmetic_of, keeps_state
from runtime.measure.samples.summary import FLOORS, TAILS, ProcessTimes, summarise
from runtime.measure.samples.variation import Timed, variation_of
from runtime.model.reader import read_model


@dataclass(frozen=True, slots=True)
class _ModelFacts:
    """Facts of the model for the verdict; `shortest_ms`: the physical bound on its latency."""

    kind: ModelKind
    shortest_ms: float


def concluded(
    attempt: AttemptFile,
    reports: Sequence[ProcessReport],
    folder: Path,
    references: References | str,
    took_s: Mapping[int, float],
) -> RunnerResult:
    """Return the result of processes that all measured. `references`: outputs, or why there are none.
    `took_s`: how long each process ran.

    A wrong output and an implausible time are failures that keep what was measured as evidence.
    """
    facts = _model_facts(attempt, reports[0])
    kind = facts if isinstance(facts, str) else facts.kind
    try:
        judged = judged_outputs(attempt, reports, folder, references, kind)
    except OutputsError as error:
        reason = Reason(code=ReasonCode.RUNNER_ERROR, text=str(error))
        return RunnerResult(status=Status.FAILED, reason=reason)
    accuracy = judged.accuracy
    measurement = _summed_up(attempt, reports, judged, took_s, folder)
    if accuracy.verdict == "fail":
        reason = Reason(code=ReasonCode.WRONG_OUTPUT, text=f"wrong output: {accuracy.note} ({accuracy.rule})")
        return RunnerResult(status=Status.FAILED, reason=reason, measurement=measurement)
    if isinstance(facts, _ModelFacts):
        why = plausibility.implausible(measurement.latency_ms.p50, facts.shortest_ms)
        if why is not None:
            update = {
                "latency_ms": _no_latency(why),
                "init": wire.InitStages(),
                "device": stages.no_device_time(why),
                "transfer": stages.no_transfer(why),
                "cpu_ms": None,
            }
            struck = measurement.model_copy(update=update)
            reason = Reason(code=ReasonCode.IMPLAUSIBLE, text=why)
            return RunnerResult(status=Status.FAILED, reason=reason, measurement=struck)
    return RunnerResult(status=Status.DONE, reason=None, measurement=measurement)


class Figures(TypedDict, total=False):
    """The fields that a measurement gets once its processes are judged, besides those of the passes."""

    quality: wire.Quality
    energy: wire.Energy
    ratio: wire.Ratio | None
    labelled: LabelledScore


def with_figures(result: RunnerResult, **found: Unpack[Figures]) -> RunnerResult:
    """Add figures to the result's measurement, if it has one."""
    if result.measurement is None:
        return result
    return result.model_copy(update={"measurement": result.measurement.model_copy(update=found)})


def over_blocks(result: RunnerResult, blocks: Sequence[wire.BlockFigure]) -> RunnerResult:
    """Add its blocks to the result. If some are earlier ones, p50 and its interval are over all of them."""
    m = result.measurement
    if m is None or not blocks:
        return result
    update: dict[str, object] = {"blocks": tuple(blocks)}
    if m.latency_ms.p50 is not None:
        found = estimate(time_units(blocks))
        missing = {name: why for name, why in m.latency_ms.missing.items() if name != "ci95"}
        if found.interval is None:
            missing["ci95"] = m.latency_ms.missing.get("ci95", "too few blocks")
        times: dict[str, object] = {"p50": found.value, "ci95": found.interval, "missing": missing}
        times |= _raised_tails(m.latency_ms, found.value)
        update["latency_ms"] = m.latency_ms.model_copy(update=times)
    return result.model_copy(update={"measurement": m.model_copy(update=update)})


def _raised_tails(latency: wire.Latency, p50: float) -> dict[str, object]:
    """Return the tails, which know the last attempt alone, and the upper ends of their intervals at p50 at
    least.
    """
    raised: dict[str, object] = {}
    for name in TAILS:
        if (tail := getattr(latency, name)) is not None:
            raised[name] = max(tail, p50)
        if (ends := getattr(latency, f"{name}_ci95", None)) is not None:
            raised[f"{name}_ci95"] = ends[0], max(ends[1], p50)
    return raised


def scored(result: RunnerResult, score: LabelledScore) -> RunnerResult:
    """Add the labelled score to the result. One that is too low makes it a wrong output."""
    result = with_figures(result, labelled=score)
    if score.verdict != "fail" or result.status is not Status.DONE:
        return result
    count = "" if score.right is None else f"{score.right} of {score.samples} right, "
    text = f"labelled data, {score.metric}: {count}{score.share:.4g}{_within(score.ci95)}"
    if score.at_least is not None:
        text += f"; at least {score.at_least:g} was asked for"
    if (drop := score.drop) is not None and drop.max_drop is not None:
        text += f"; {drop.value:+.4g}{_within(drop.ci95)} against {drop.baseline}"
        text += f", where a drop of {drop.max_drop:g} is allowed"
    reason = Reason(code=ReasonCode.WRONG_OUTPUT, text=text)
    return result.model_copy(update={"status": Status.FAILED, "reason": reason})


def _within(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f" [{interval[0]:.4g} to {interval[1]:.4g}]"


def not_measured(failure: Failure) -> RunnerResult:
    """Return a failure as a result; a delegation report comes along in a measurement without figures."""
    if failure.delegation is None:
        return RunnerResult(status=failure.status, reason=failure.reason)
    why = f"not measured: {failure.reason.code.value}"
    measurement = wire.Measurement(
        latency_ms=_no_latency(why),
        samples=0,
        memory_peak_bytes=0,
        accuracy=unjudged(None, why),
        delegation=failure.delegation,
        settings={},
        advice=failure.advice,
    )
    return RunnerResult(status=failure.status, reason=failure.reason, measurement=measurement)


def _model_facts(attempt: AttemptFile, report: ProcessReport) -> _ModelFacts | str:
    """Read the model; the reason where our reader cannot, which does not stop a peer from running it."""
    try:
        model = read_model(Path(attempt.model_path).read_bytes())
    except FarmRuntimeError as error:
        return f"the model's arithmetic is not known: {error}"
    try:
        stated = {spec.name: (spec.kind, spec.role) for spec in attempt.job.plan.outputs}
        outputs = output_kinds(model, stated)
    except UnknownOutputError as error:
        return str(error)
    arithmetic = arithmetic_of(model)
    precision = report.settings.get("precision", "unknown")
    bound = plausibility.shortest_ms(model, _silicon(attempt.device), arithmetic, precision)
    return _ModelFacts(ModelKind(arithmetic, keeps_state(model), outputs), bound)


def _silicon(device: Device) -> plausibility.Device:
    if device.kind == "cpu":
        return plausibility.Device.cpus(len(usable_cpus()))
    units, clock = (int(device.facts.get(f"opencl_{name}", "0")) for name in ("compute_units", "clock_mhz"))
    return plausibility.Device.opencl_gpu(units, clock)


def _summed_up(
    attempt: AttemptFile,
    reports: Sequence[ProcessReport],
    judged: JudgedOutputs,
    took_s: Mapping[int, float],
    folder: Path,
) -> wire.Measurement:
    """Compute the cell's figures, the cold process first; memory is the largest of a timed one."""
    processes = [report.samples for report in reports if report.samples is not None]
    cold = [p for p in processes if p.cache == "cold"]
    timed = [p for p in processes if p.cache == "warm"]
    times = [
        ProcessTimes(p.cache, p.init_ns, p.first_ns, p.kept_ns, p.tuning, p.kept_runs) for p in processes
    ]
    latency = summarise(times)
    flags = (f"process {p.index + 1}: {flag}" for p in processes for flag in p.flags)
    cpus = sorted(usable_cpus())
    settings = {
        **reports[0].settings,
        "threads": str(len(cpus)),
        "cpus": ",".join(map(str, cpus)),
        "processes": str(sum(bool(p.kept_ns) for p in timed)),
        "warmup_runs": cold[0].facts.get("warmup_runs", ""),
        "steady_state": cold[0].facts.get("steady_state", ""),
        "pool_sha256": processes[0].facts.get("pool_sha256", ""),
        "plan": attempt.job.plan.model_dump_json(),
        # The farm shows the floors beside the figures and may not import them: they are part of the result.
        "sample_floors": json.dumps(FLOORS),
    }
    return wire.Measurement(
        latency_ms=wire.Latency.like(latency),
        samples=sum(len(p.kept_ns) for p in processes),
        memory_peak_bytes=max(p.memory_peak_bytes for p in timed),
        memory_peak_cold_bytes=max(p.memory_peak_bytes for p in cold),
        accuracy=judged.accuracy,
        delegation=reports[0].delegation,
        settings=settings,
        warnings=(*flags, *_not_warm(reports), *judged.warnings),
        variation=_variation(reports, took_s),
        tunings=tunings(reports),
        init=stages.init_stages(processes, reports[0].unseen),
        memory=stages.memory_stages(timed, reports[-1].unseen),
        installed=installed(attempt.job.delegate_kind, attempt.release_of),
        cpu_ms=stages.cpu_time(timed),
        device=stages.device_time(timed, reports[-1].unseen),
        transfer=stages.transfer(timed, reports[-1].unseen),
        cache_bytes=bytes_left(caches_folder(folder, 0)),
        advice=reports[0].advice,
    )


def _variation(reports: Sequence[ProcessReport], took_s: Mapping[int, float]) -> wire.Variation | None:
    """Return how much the medians vary, and what would narrow the interval; None for fewer than two."""
    samples = [report.samples for report in reports if report.samples is not None]
    found = variation_of(
        [
            [
                # The second: what it cost besides timed invokes. Those of
                # repeated rounds, which `kept_ns` lacks, are no part of it.
                Timed(p.kept_ns, took_s.get(p.index, 0.0) - math.fsum(p.invoke_ns) / 1e9, p.kept_runs)
                for p in group
            ]
            for group in by_tuning(samples)
        ],
        [took_s.get(p.index, 0.0) for p in samples if p.cache == "cold"],
    )
    if found is None:
        return None
    given = found.level == "process" and reports[0].choices is not None
    return wire.Variation.like(found, given_tuning=given)


def _not_warm(reports: Sequence[ProcessReport]) -> Iterator[str]:
    """Say how many warm starts did not find the recording of an earlier one, and why."""
    warm = [report.settings.get(RECORDING, KEPT) for report in timed_reports(reports)]
    for told, count in Counter(warm).items():
        if told != KEPT:
            yield f"{count} of {len(warm)} warm starts prepared the model anew: its recording was {told}"


def _no_latency(why: str) -> wire.Latency:
    names = [name for name in wire.Latency.model_fields if name != "missing"]
    return wire.Latency.model_validate({**dict.fromkeys(names), "missing": dict.fromkeys(names, why)})
