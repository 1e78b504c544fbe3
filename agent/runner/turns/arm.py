"""One arm of an attempt: the processes that it runs, what they reported, and how it ends."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent.attempt import files
from agent.machine.conditions import why_not_published
from agent.machine.rounds import Round, allowance
from agent.processes.environment import for_runner, own_caches
from agent.runner.failures import failure_of
from agent.runner.judge.blocks import added, block_figures
from agent.runner.judge.verdict import not_measured
from agent.runner.probe.environment import choose_cpus, core_siblings, measuring_environment, present_device
from agent.runner.tunings import cold_index, planned_tunings, timed
from agent.runner.turns.children import Children, bounded
from agent.runner.turns.comparison import AnyArm, CancelledError, Clock, FailedError
from agent.runner.turns.process import MeasuringProcess
from agent.wire.labelled import LabelledScore
from agent.wire.measurement import BlockFigure
from agent.wire.messages import JobSpec, ReasonCode, Status, environment_id
from runtime.common.durable import write_atomically
from runtime.common.system import usable_cpus, use_cpus
from runtime.delegates.descriptor import DelegateDescriptor
from runtime.delegates.registry import delegate_descriptor
from runtime.errors import DelegateError, FarmRuntimeError


@dataclass(slots=True, eq=False)
class Arm(AnyArm):
    """One arm: its processes and what they reported. Where it is `alone`, the agent's limit is its own.

    `allowed`: the CPUs that the runner may use, of which each arm takes its own number. `environments`: those
    of each tuning. `took_s`: how long each process ran in its own turns, by its number. `rounds`: the kept
    rounds of each block. `score`: on labelled data, once it was asked. `live`: its process that is alive.
    """

    job_file: Path
    clock: Clock
    allowed: Sequence[int]
    cpus: Sequence[int] = ()
    environments: list[Mapping[str, str]] = field(default_factory=list)
    took_s: dict[int, float] = field(default_factory=dict)
    tunings: int = 1
    reports: list[files.ProcessReport] = field(default_factory=list)
    rounds: dict[int, list[Round]] = field(default_factory=dict)
    alternated: bool = False
    score: LabelledScore | None = None
    result: files.RunnerResult | None = None
    live: MeasuringProcess | None = None

    @classmethod
    def read(cls, job_file: Path, *, alone: bool) -> "Arm":
        """Read the arm's job."""
        attempt = files.AttemptFile.model_validate_json(job_file.read_bytes())
        clock = Clock(None if alone else attempt.job.soft_limit_s)
        cpus = sorted(usable_cpus())
        return cls(attempt, job_file.parent, job_file, clock, cpus, alone=alone)

    def blocks(self, base: "Arm | None" = None) -> list[BlockFigure]:
        """Return the blocks of its result, earlier ones first; the new ones with their ratios over `base`."""
        allowances = {number: allowance(kept, self.name) for number, kept in self.rounds.items()}
        base_reports = () if base is None else base.reports
        return added(self.earlier, block_figures(self.reports, base_reports, allowances))

    @property
    def children(self) -> Children:
        """The processes that it runs before and after the timed ones."""
        return Children(self.attempt, self.job_file, self.folder, self.clock)

    @property
    def has_blocks(self) -> bool:
        """Whether it has finished a block of its own."""
        return bool(timed(self.reports))

    def do(self, step: Callable[[], None]) -> None:
        """Take a step; a failure in it ends this arm alone, and so does a cancel."""
        if not self.over and files.is_cancelled(self.folder):
            self.cancel()
        if not self.over and not self.cancelled:
            self.conclude(step)

    def conclude(self, step: Callable[[], None]) -> None:
        """Take a step although the arm may be cancelled: what it has finished is summed up."""
        if self.cpus:
            # For the processes that the step starts, which are bound to the CPUs of this one.
            use_cpus(self.cpus)
        try:
            step()
            if not self.alone:
                files.write_progress(self.folder, files.TURN_TEXT)
        except CancelledError:
            self.cancel()
        except FailedError as error:
            self.end(not_measured(error.failure).model_copy(update={"environment": error.environment}))

    def prepare(self) -> None:
        """Choose the CPUs and the environment of its processes. Raises `FailedError`."""
        _check_publishable(self.attempt, self.allowed)
        descriptor = _checked_descriptor(self.attempt)
        self.attempt = _with_present_device(self.attempt, self.job_file)
        self.cpus = _chosen_cpus(self.attempt, descriptor, self.allowed)
        self.tunings = planned_tunings(self.job, descriptor)
        base = _with_release(for_runner(), self.attempt, descriptor)
        self.environments = [
            measuring_environment(
                base, files.caches_folder(self.folder, tuning), len(self.cpus), self.allowed
            )
            for tuning in range(self.tunings)
        ]

    def score_labelled(self) -> None:
        """Run the labelled data, unless that has been done. Raises `FailedError`, `CancelledError`."""
        if self.score is None:
            self.score = self.children.labelled(self.environments[0])

    def start_process(self, index: int, tuning: int, who: str) -> MeasuringProcess:
        """Start a measuring process on the arm's CPUs, in a folder of its own. It becomes the live one."""
        own = files.own_folder(self.folder, index)
        # Never there before: a block that is measured once more has a number of its own.
        own.mkdir()
        environment = {**self.environments[tuning], "TMPDIR": str(own)}
        self.live = MeasuringProcess.start(
            self.attempt, self.job_file, self.folder, index, tuning, who, self.clock, environment,
            lambda launch: bounded(launch, self.attempt, own, files.caches_folder(self.folder, tuning)),
        )  # fmt: skip
        # The signal may have come before there was a process to kill.
        self.kill_if_cancelled()
        return self.live

    def run_cold(self, tuning: int) -> None:
        """Run the process with which a tuning begins. Raises `FailedError`."""
        index = cold_index(tuning, self.job.plan)
        which = "the cold process" + (f" of tuning {tuning + 1}" if self.tunings > 1 else "")
        process = self.start_process(index, tuning, which)
        before_s = self.clock.used_s
        try:
            process.wait_loaded()
            report = process.run_cold()
        finally:
            process.close()
            self.live = None
        self.took_s[index] = self.clock.used_s - before_s
        check_conditions(self.job, report.environment)
        self.reports.append(report)
        # For the processes that follow, which take from it what it chose and its warm-up.
        write_atomically(files.report_path(self.folder, index), report.model_dump_json().encode())

    def drop_block(self, index: int) -> None:
        """Mark what its process `index` timed as not kept: the block was measured once more."""
        self.rounds.pop(index, None)
        self.reports = [
            report if (samples := report.samples) is None or samples.index != index
            else report.model_copy(update={"samples": samples.without_kept()})
            for report in self.reports
        ]  # fmt: skip

    def cancel(self) -> None:
        """Take no further step. What is finished is for `conclude`."""
        self.cancelled = True
        # What had stopped it before the cancel stays its reason.
        self.stopped = self.stopped or "cancelled"
        self.drop_process()

    def leave(self) -> None:
        """End without a result."""
        self.over = True
        self.drop_process()
        files.mark_left(self.folder)

    def drop_process(self) -> None:
        """End the live process."""
        if self.live is not None:
            self.live.close()
            self.live = None

    def kill_if_cancelled(self) -> None:
        """Kill its live process where the agent has cancelled it; its turn then ends as cancelled."""
        if self.live is not None and files.is_cancelled(self.folder):
            self.live.kill()

    def end(self, result: files.RunnerResult) -> None:
        """Write the result, which the agent reads once the runner has ended."""
        self.over = True
        self.drop_process()
        busy_ns = None if self.alone else int(1e9 * self.clock.used_s)
        self.result = result.model_copy(update={"busy_ns": busy_ns})
        write_atomically(self.folder / files.RESULT_FILE, self.result.model_dump_json().encode())


def check_conditions(job: JobSpec, environment: dict[str, str]) -> None:
    """Raise `FailedError` where blocks are to be added to those of another environment."""
    if job.refines is None or environment_id(environment) == job.refines.environment_id:
        return
    text = (
        "the machine or its software is not what it was when the earlier blocks were measured; nothing was "
        "added: farm retry measures the cell anew"
    )
    raise FailedError(files.Failure.of(ReasonCode.CONDITIONS_CHANGED, text), environment)


def _check_publishable(attempt: files.AttemptFile, cpus: Collection[int]) -> None:
    """Raise `FailedError` where `publish` is asked for on a machine whose figures are not for publication."""
    why = why_not_published(cpus) if attempt.job.plan.level == "publish" else None
    if why is not None:
        # Not a failure of the model: `no_device` is not reused, so the cell runs again once this is mended.
        failure = files.Failure.of(ReasonCode.NO_DEVICE, f"publish: {why}", Status.UNSUPPORTED)
        raise FailedError(failure)


def _checked_descriptor(attempt: files.AttemptFile) -> DelegateDescriptor:
    """Return the descriptor of the job's delegate, once it has accepted the job's options.

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


def _with_release(
    environment: Mapping[str, str], attempt: files.AttemptFile, descriptor: DelegateDescriptor
) -> Mapping[str, str]:
    folder = None if descriptor.release is None else attempt.release_of(descriptor.release[0])
    if folder is None:
        return environment
    # In front of all else on the path: its packages are found before the installed ones.
    # Without an empty entry, which Python reads as the current folder.
    folders = [str(folder), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": os.pathsep.join(folders)}


def _chosen_cpus(
    attempt: files.AttemptFile, descriptor: DelegateDescriptor, allowed: Sequence[int]
) -> Sequence[int]:
    """Choose the CPUs of the job's `threads`, to which this process, and so its children, is bound in its
    turns.

    Without that option the delegate's descriptor sets the count; without that, all CPUs are used.
    """
    declared = descriptor.options.get("threads")
    default = None if declared is None else declared.default
    wanted = attempt.job.delegate_options.get("threads", len(allowed) if default is None else default)
    try:
        return choose_cpus(allowed, core_siblings(allowed), int(wanted))
    except ValueError as error:
        # Not a failure of the model: `no_device` is not reused, so the cell runs again with more CPUs.
        failure = files.Failure.of(ReasonCode.NO_DEVICE, str(error), Status.UNSUPPORTED)
        raise FailedError(failure) from error


def _with_present_device(attempt: files.AttemptFile, job_file: Path) -> files.AttemptFile:
    """Return the attempt with its OpenCL device at its present index and its adapter of WebGPU as it is now,
    for the processes too.

    Found here and not where it is opened: what a driver does on its first use is part of `init`. Raises
    `FailedError` where another device has taken its place.
    """
    if attempt.device.api == "host":
        return attempt
    # A driver that cannot write its cache, as in the sandbox the user's, lists no device.
    os.environ.update(own_caches(job_file.parent / "listing"))
    try:
        present = attempt.model_copy(update={"device": present_device(attempt.device)})
    except FarmRuntimeError as error:
        raise FailedError(failure_of(error, attempt)) from error
    write_atomically(job_file, present.model_dump_json().encode())
    return present
