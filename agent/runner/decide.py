"""The runner that decides: starts the processes that measure, judges and sums up. It measures nothing itself.

It runs one attempt, or several as the arms of one comparison, which take turns: block 0 has each arm's cold
processes, one for each tuning, which find empty program caches and whose outputs are judged; every other
block has one process of each arm that shares what the cold one of its tuning filled (warm) and is timed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from agent.attempt.files import (
    RESULT_FILE,
    SAMPLES_FILE,
    TURN_TEXT,
    AttemptFile,
    Failure,
    ProcessReport,
    RunnerResult,
    SustainedReport,
    ThroughputReport,
    is_cancelled,
    write_atomically,
    write_progress,
)
from agent.machine.publishable import why_not_published
from agent.processes.environment import for_runner
from agent.runner.blocks import arm_name, drawn_order, paired_ratio
from agent.runner.children import CancelledError, Children, FailedError
from agent.runner.environment import choose_cpus, core_siblings, measuring_environment, own_caches
from agent.runner.failures import failure_of
from agent.runner.host import host_tuning
from agent.runner.references import References, find_references
from agent.runner.reported import present_device
from agent.runner.sustained import sustained
from agent.runner.telemetry import Telemetry, sensors_read
from agent.runner.throughput import throughput
from agent.runner.trust import Guard, trust_of
from agent.runner.tunings import COLD, cold_index, is_cold, planned_tunings, tuning_of
from agent.runner.verdict import concluded, not_measured, scored, with_figures
from agent.wire.messages import JobSpec, Reason, ReasonCode, Status
from runtime.delegates.descriptor import DelegateDescriptor
from runtime.delegates.registry import delegate_descriptor
from runtime.errors import DelegateError, FarmRuntimeError


def run_attempt(job_file: Path) -> None:
    """Run the attempt of `job_file` and its arms; write `result.json` (and `samples.json`) beside each job.

    A failure ends its own arm alone: the others go on in their blocks.
    """
    lead = AttemptFile.model_validate_json(job_file.read_bytes())
    job_files = [job_file, *map(Path, lead.arms)]
    arms = [_Arm.read(path, alone=not lead.arms) for path in job_files]
    found: list[References | str] = []
    for arm in arms:
        arm.do(arm.prepare)
    for arm in arms:
        # Model and inputs are the same for all arms, and so is what their outputs are judged by.
        if not found:
            arm.do(partial(arm.find_references, found, job_file.parent))
    with sensors_read([arm.attempt for arm in arms], job_files, arms[0].allowed) as sensors:
        for block in range(1 + lead.job.plan.processes):
            for arm in _in_order(arms, lead.job.seed, block):
                arm.do(partial(arm.measure, block))
        baseline = next((arm for arm in arms if arm.job.attempt_id == lead.job.baseline), None)
        # The baseline is judged first: a ratio over wrong outputs would mean nothing.
        for arm in sorted(_alive(arms), key=lambda arm: arm is not baseline):
            arm.do(partial(arm.conclude, found[0], baseline, lead.job.seed, sensors))


def _alive(arms: Sequence[_Arm]) -> list[_Arm]:
    """The arms that go on; none where no attempt is among them: a baseline alone serves nobody."""
    alive = [arm for arm in arms if not arm.over]
    return alive if any(arm.attempt.reported for arm in alive) else []


def _in_order(arms: Sequence[_Arm], seed: int, block: int) -> Iterator[_Arm]:
    """The arms of a block. One that has ended meanwhile is left out, and the rest where none is left."""
    named = {arm_name(arm.job): arm for arm in arms}
    return (arm for name in drawn_order(named, seed, block) if (arm := named[name]) in _alive(arms))


@dataclass(slots=True, eq=False)
class _Arm:
    """One arm: its processes and what they reported. `over`: it has ended, and takes part in no more blocks.

    `allowed`: the CPUs that the runner may use, of which each arm takes its own number. `environments`: those
    of each tuning. `took_s`: how long each process ran, by its number.
    """

    attempt: AttemptFile
    folder: Path
    children: Children
    guard: Guard
    allowed: Sequence[int]
    cpus: Sequence[int] = ()
    environments: list[Mapping[str, str]] = field(default_factory=list)
    took_s: dict[int, float] = field(default_factory=dict)
    tunings: int = 1
    reports: list[ProcessReport] = field(default_factory=list)
    result: RunnerResult | None = None
    over: bool = False

    @classmethod
    def read(cls, job_file: Path, *, alone: bool) -> _Arm:
        """Read the arm's job. `alone`: it has no other arms, and the agent's limit is its own."""
        attempt = AttemptFile.model_validate_json(job_file.read_bytes())
        limit_s = None if alone else attempt.job.soft_limit_s
        folder, allowed = job_file.parent, sorted(os.sched_getaffinity(0))
        guard = Guard.of(attempt, allowed, partial(write_progress, folder))
        children = Children(attempt, job_file, folder, limit_s)
        return cls(attempt, folder, children, guard, allowed)

    @property
    def job(self) -> JobSpec:
        """What is measured."""
        return self.attempt.job

    def do(self, step: Callable[[], None]) -> None:
        """Take a step; a failure in it ends this arm alone."""
        if self.over:
            return
        if is_cancelled(self.folder):
            self.over = True
            return
        if self.cpus:
            os.sched_setaffinity(0, self.cpus)
        try:
            step()
            if not self.children.alone:
                write_progress(self.folder, TURN_TEXT)
        except CancelledError:
            self.over = True
        except FailedError as error:
            self._end(not_measured(error.failure).model_copy(update={"environment": error.environment}))

    def prepare(self) -> None:
        """Choose the CPUs and the environment of its processes. Raises `FailedError`."""
        _check_publishable(self.attempt, self.allowed)
        descriptor = _checked_descriptor(self.attempt)
        self.attempt = _with_present_device(self.attempt, self.children.job_file)
        self.cpus = _chosen_cpus(self.attempt, descriptor, self.allowed)
        self.tunings = planned_tunings(self.job, descriptor)
        self.environments = [
            measuring_environment(for_runner(), self.folder / name, len(self.cpus), self.allowed)
            for name in ("caches", *(f"caches-{tuning}" for tuning in range(1, self.tunings)))
        ]

    def find_references(self, found: list[References | str], folder: Path) -> None:
        """Append the references, or why there are none; `folder` takes new ones. Raises `FailedError`."""
        found.append(find_references(self.attempt, folder, self.children.reference))

    def measure(self, block: int) -> None:
        """Run the process of a block; block 0 is that of the cold ones. Raises `FailedError`."""
        if block != COLD:
            self._run(block, tuning_of(block, self.tunings))
            return
        for tuning in range(self.tunings):
            self._run(cold_index(tuning, self.job.plan), tuning)
            if self.reports[0].choices is None:
                # It chose nothing by timing: another tuning would be the same one.
                self.tunings = 1
                return

    def _run(self, index: int, tuning: int) -> None:
        """Run one process. Raises `FailedError`."""
        count = self.tunings + self.job.plan.processes
        write_progress(self.folder, f"process {index + 1} of {count}")
        run = partial(self.children.measure, index, tuning, count, self.environments[tuning])
        before_s = self.children.used_s
        self.reports.append(self.guard.around(index, run, timed=not is_cold(index, self.job.plan)))
        self.took_s[index] = self.children.used_s - before_s

    def conclude(
        self, references: References | str, baseline: _Arm | None, seed: int, sensors: Telemetry
    ) -> None:
        """Judge, sum up, take the ratio over the baseline, then run what follows the timed processes: the
        passes that were asked for, the labelled data. Raises `FailedError`.
        """
        write_progress(self.folder, "judging")
        self.reports = [sensors.evidence(self.attempt.device, report) for report in self.reports]
        result = concluded(self.attempt, self.reports, self.folder, references, self.took_s)
        energy = sensors.energy(self.attempt.device, self.reports)
        result = with_figures(result, trust=trust_of(self.guard, self.reports), energy=energy)
        if baseline is not None and baseline is not self:
            result = self._with_ratio(result, baseline, seed)
        if self.attempt.reported and result.status is Status.DONE:
            result = self._with_passes(result, sensors)
        if self.job.plan.labelled is not None and self.attempt.reported:
            result = scored(result, self.children.labelled(self.environments[0]))
        found = {
            "samples_sha256": _write_samples(self.folder, self.reports),
            "environment": self.reports[-1].environment,
            "facts": self.guard.facts() | host_tuning(),
        }
        self._end(result.model_copy(update=found))

    def _with_passes(self, result: RunnerResult, sensors: Telemetry) -> RunnerResult:
        """The result with what the passes say that were asked for, the one that heats the machine last."""
        environment = self.environments[0]
        if self.job.plan.throughput is not None:
            counted = self.children.run_pass(ThroughputReport, environment)
            result = with_figures(result, throughput=throughput(counted, self.job.plan.throughput))
        if self.job.plan.sustained_s is not None:
            report = self.children.run_pass(SustainedReport, environment)
            result = with_figures(result, sustained=sustained(report, self.attempt, sensors))
        return result

    def _with_ratio(self, result: RunnerResult, baseline: _Arm, seed: int) -> RunnerResult:
        """The result with its ratio over a baseline that was right, where this result is."""
        base = baseline.result
        if base is None or {result.status, base.status} != {Status.DONE}:
            return result
        note = ""
        if len(self.cpus) != len(baseline.cpus):
            note = f" (threads: {len(baseline.cpus)} against {len(self.cpus)} here)"
        ratio = paired_ratio(self.reports, baseline.reports, baseline.job, seed, note)
        return with_figures(result, ratio=ratio)

    def _end(self, result: RunnerResult) -> None:
        """Write the result, which the agent reads once the runner has ended."""
        self.over = True
        busy_ns = None if self.children.alone else int(1e9 * self.children.used_s)
        self.result = result.model_copy(update={"busy_ns": busy_ns})
        write_atomically(self.folder / RESULT_FILE, self.result.model_dump_json().encode())


def _check_publishable(attempt: AttemptFile, cpus: Collection[int]) -> None:
    """Raise `FailedError` where `publish` is asked for on a machine whose figures are not for publication."""
    why = why_not_published(cpus) if attempt.job.plan.level == "publish" else None
    if why is not None:
        # Not a failure of the model: `no_device` is not reused, so the cell runs again once this is mended.
        reason = Reason(code=ReasonCode.NO_DEVICE, text=f"publish: {why}")
        raise FailedError(Failure(status=Status.UNSUPPORTED, reason=reason))


def _checked_descriptor(attempt: AttemptFile) -> DelegateDescriptor:
    """The descriptor of the job's delegate, once it has accepted the job's options.

    The farm checked them against the descriptor that is installed where the campaign was submitted; another
    version may be installed here. Raises `FailedError`.
    """
    try:
        descriptor = delegate_descriptor(attempt.job.delegate_kind)
        # The count of threads is judged by `_chosen_cpus`, which knows this host's CPUs.
        descriptor.parse({k: v for k, v in attempt.job.delegate_options.items() if k != "threads"})
    except DelegateError as error:
        raise FailedError(failure_of(error, attempt)) from error
    return descriptor


def _chosen_cpus(
    attempt: AttemptFile, descriptor: DelegateDescriptor, allowed: Sequence[int]
) -> Sequence[int]:
    """The CPUs of the job's `threads`, to which this process, and so its children, is bound in its turns.

    Without that option the delegate's descriptor sets the count; without that, all CPUs are used.
    """
    declared = descriptor.options.get("threads")
    default = None if declared is None else declared.default
    wanted = attempt.job.delegate_options.get("threads", len(allowed) if default is None else default)
    try:
        return choose_cpus(allowed, core_siblings(allowed), int(wanted))
    except ValueError as error:
        # Not a failure of the model: `no_device` is not reused, so the cell runs again with more CPUs.
        reason = Reason(code=ReasonCode.NO_DEVICE, text=str(error))
        raise FailedError(Failure(status=Status.UNSUPPORTED, reason=reason)) from error


def _with_present_device(attempt: AttemptFile, job_file: Path) -> AttemptFile:
    """The attempt with its OpenCL device at the index that it has now, for the processes too.

    Found here and not where it is opened: what a driver does on its first use is part of `init`. Raises
    `FailedError` where another device has taken its place.
    """
    if attempt.device.api != "opencl":
        return attempt
    # A driver that cannot write its cache, as in the sandbox the user's, lists no device.
    os.environ.update(own_caches(job_file.parent / "listing"))
    try:
        present = attempt.model_copy(update={"device": present_device(attempt.device)})
    except FarmRuntimeError as error:
        raise FailedError(failure_of(error, attempt)) from error
    write_atomically(job_file, present.model_dump_json().encode())
    return present


def _write_samples(folder: Path, reports: Sequence[ProcessReport]) -> str:
    """All raw samples as one JSON list; returns the sha256 of the file."""
    samples = [report.samples.model_dump(mode="json") for report in reports if report.samples is not None]
    data = json.dumps(samples, separators=(",", ":")).encode()
    write_atomically(folder / SAMPLES_FILE, data)
    return hashlib.sha256(data).hexdigest()
