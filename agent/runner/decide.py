"""The runner that decides: starts the processes that measure, judges and sums up. It measures nothing itself.

It runs one attempt, or several as the arms of one comparison. First each arm runs its cold processes, one for
each tuning, which find empty program caches and whose outputs are judged; then the arms are measured together
by blocks (`agent.runner.turns.block`), until each one's answer is known (`agent.runner.judge.stopping`).
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from agent.attempt.files import SAMPLES_FILE, AttemptFile, ProcessReport, is_cancelled, write_progress
from agent.machine.gate import WAITS, Gate
from agent.machine.workload import Reading, as_facts
from agent.runner.judge.accuracy import NONDETERMINISTIC
from agent.runner.judge.blocks import (
    allowance_of,
    halved_units,
    paired_ratio,
    ratio_units,
    rounds_by_tuning,
    time_units,
)
from agent.runner.judge.references import References, find_references
from agent.runner.judge.stopping import ArmState, Spent, is_repeated, next_rounds, sizes_fact
from agent.runner.judge.verdict import concluded, over_blocks, with_figures
from agent.runner.passes.telemetry import Telemetry, energy_over, sensors_read
from agent.runner.probe.host import host_tuning
from agent.runner.turns import calibration
from agent.runner.turns.arm import Arm
from agent.runner.turns.block import BlockAsked, BlockRun, fit_together, run_block
from agent.runner.turns.comparison import CancelledError, Comparison, ended_when_asked
from agent.runner.turns.later import later_steps
from agent.runner.turns.quality import quality_of
from agent.wire.measurement import Ratio
from agent.wire.messages import Status
from runtime.common.durable import write_atomically
from runtime.common.system import use_cpus

MAX_WAIT_SHARE: Final = 0.2
"""Share of an attempt's time limit that it may spend waiting for a quiet machine."""

_TIME_MARGIN: Final = 1.5
"""How many times as long as the longest one so far another block may take: it is begun while the attempt has
that much time."""

_FINISH_SHARE: Final = 0.1
"""Share of an attempt's time limit that is left for judging and for the passes that follow."""


def run_attempt(job_file: Path) -> None:
    """Run the attempt of `job_file` and its arms; write `result.json` (and `samples.json`) beside each job.

    A failure ends its own arm alone: the others go on in their blocks.
    """
    began_s = time.monotonic()
    lead = AttemptFile.model_validate_json(job_file.read_bytes())
    job_files = [job_file, *map(Path, lead.arms)]
    arms = [Arm.read(path, alone=not lead.arms) for path in job_files]
    with ended_when_asked(arms):
        references: list[References | str] = []
        for arm in arms:
            arm.do(arm.prepare)
        for arm in arms:
            # Model and inputs are the same for all arms, and so is what their outputs are judged by.
            if not references:
                arm.do(partial(_find_references, arm, references, job_file.parent))
        with sensors_read([arm.attempt for arm in arms], job_files, arms[0].allowed) as sensors:
            measured = _Blocks(arms, lead, began_s, sensors, references[0] if references else "")
            measured.run()
            measured.end_cancelled()
            measured.conclude(measured.alive)


def _find_references(arm: Arm, found: list[References | str], folder: Path) -> None:
    """Append the references, or why there are none; `folder` takes new ones. Raises `FailedError`."""
    found.append(find_references(arm.attempt, folder, arm.children.reference))


@dataclass(slots=True)
class _Blocks(Comparison[Arm]):
    """Measures the arms together. `references`: outputs, or why there are none. `runs`: what each
    block said, those included that were measured once more; `rounds`: of the next block; `wrong`: whether the
    outputs of an arm are, by its name, as far as it was asked; `notes`: what was seen in front of a block.
    """

    sensors: Telemetry
    references: References | str
    runs: list[BlockRun] = field(default_factory=list)
    rounds: int = 0
    repeated: int = 0
    wrong: dict[str, bool] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def history(self) -> list[Reading]:
        """The readings of the calibration workload before this attempt."""
        return [Reading(*pair) for pair in self.lead.usual]

    def run(self) -> None:
        """Run the cold processes, then blocks until each arm's answer is known."""
        for arm in self.arms:
            _run_cold(arm)
            self.end_cancelled()
        together = len(self.alive) > 1 and fit_together(self.alive)
        gate = self._gate()
        plan, earlier = self.lead.job.plan, len(self.arms[0].earlier)
        # At least one, although the earlier blocks may be as many as the plan allows.
        for number in range(1, max(1, plan.max_blocks - earlier) + 1):
            # Also where no arm is alive.
            if all(arm.stopped is not None for arm in self.alive):
                return
            self._run_block(number, number, gate, together=together)
            disturbed = [run.disturbed for run in self.runs]
            if is_repeated(disturbed, self.repeated, plan.most_repeated) and self._spent() is None:
                self.repeated += 1
                # Its processes have numbers behind those of all blocks (`agent.runner.tunings`).
                self._run_block(number, plan.max_blocks + self.repeated, gate, together=together)
                for arm in self.alive:
                    # Only now: an arm that ended in the repetition keeps the block that it has.
                    arm.drop_block(number)
            states = {arm.name: self._state(arm) for arm in self.alive}
            self.stop_known(earlier + number, states, self.baseline, self._spent())

    def _run_block(self, number: int, index: int, gate: Gate | None, *, together: bool) -> None:
        taking_part = [arm for arm in self.alive if arm.stopped is None]
        if not taking_part:
            return
        # One that is cancelled meanwhile takes no part, and with the last one the waiting ends.
        with contextlib.suppress(CancelledError):
            if gate is not None and (why := gate.pass_quietly()) is not None:
                self.notes.append(f"before block {number}: {why}")
        if self.lead.job.plan.halving is not None:
            # Those that are left of a race may fit although all of them did not.
            together = fit_together(taking_part)
        asked = BlockAsked(number, self.rounds or self.lead.job.plan.rounds, index)
        seed, between = self.lead.job.seed, self.end_cancelled
        self.runs.append(run_block(taking_part, asked, seed, self.sensors, between, together=together))
        self.end_cancelled()
        self.rounds = self._next_rounds()

    def _next_rounds(self) -> int:
        """Return the size of the next block, by the ratios of the arms that have one, else by times."""
        base = None if self.baseline is None or self.baseline.over else self.baseline
        arms = [arm for arm in self.alive if arm is not base]
        over = base.reports if base is not None and arms else None
        groups = [group for arm in arms or self.alive for group in rounds_by_tuning(arm.reports, over)]
        return next_rounds(self.lead.job.plan, groups, [run.cost for run in self.runs])

    @property
    def facts(self) -> list[str]:
        """The observations in front of blocks, and the number of rounds chosen for each block."""
        return [*self.notes, *sizes_fact([run.asked.rounds for run in self.runs])]

    def _gate(self) -> Gate | None:
        """Return what waits for a quiet machine; None for a level that never does."""
        waits = WAITS[self.lead.job.plan.level]
        if not waits:
            return None
        gate = Gate(self.arms[0].allowed, self.history, waits, self._tell_waiting, calibration.read)
        gate.wait_s = min(gate.wait_s, MAX_WAIT_SHARE * self.lead.job.soft_limit_s / waits)
        return gate

    def _tell_waiting(self, why: str) -> None:
        """Tell why nothing is measured. Raises `CancelledError` where no arm is left to be measured."""
        if all(is_cancelled(arm.folder) for arm in self.alive):
            raise CancelledError
        write_progress(self.arms[0].folder, why)

    def end_cancelled(self) -> None:
        """End the arms that were cancelled: with the blocks that they have finished, if there are any."""
        for arm in self.arms:
            if not arm.over and is_cancelled(arm.folder):
                arm.cancel()
        ended = [arm for arm in self.arms if arm.cancelled and not arm.over]
        self.conclude(arm for arm in ended if arm.has_blocks)
        for arm in ended:
            if not arm.over:
                arm.leave()

    def conclude(self, arms: Iterable[Arm]) -> None:
        """Judge these arms and write their results; more may be timed for others behind that."""
        # The baseline is judged first: a ratio over wrong outputs would mean nothing.
        for arm in sorted(arms, key=lambda arm: arm is not self.baseline):
            arm.conclude(partial(_conclude, arm, self))
        self.sensors.forget()

    def _spent(self) -> Spent | None:
        """Return `time` where the attempt's time would not suffice for another block."""
        # As the agent grants it: one runner carries all arms.
        limit_s = sum(arm.job.soft_limit_s for arm in self.arms)
        later_s = sum(self.lead.job.plan.passes_s) * len(self.arms)
        spent_s = time.monotonic() - self.began_s
        next_s = max(run.cost.of_next(self.rounds) for run in self.runs)
        needed_s = _TIME_MARGIN * next_s + later_s + _FINISH_SHARE * limit_s
        return "time" if spent_s + needed_s > limit_s else None

    def _state(self, arm: Arm) -> ArmState:
        base = self.baseline
        until_decided = arm.job.refines is None or arm.job.refines.until_decided
        halving = self.lead.job.plan.halving
        if halving is not None:
            blocks, figures = arm.blocks(), halved_units(arm.reports, halving)
            times, allowance = time_units(blocks), allowance_of(blocks)
            return ArmState(times, (), allowance, arm.stopped, until_decided, figures, self._is_wrong(arm))
        if base is None or base is arm or base.over:
            blocks = arm.blocks()
            return ArmState(time_units(blocks), (), allowance_of(blocks), arm.stopped, until_decided)
        blocks = arm.blocks(base)
        allowance = _joint_allowance(arm, base)
        return ArmState(time_units(blocks), ratio_units(blocks), allowance, arm.stopped, until_decided)

    def _is_wrong(self, arm: Arm) -> bool:
        """Whether its outputs are wrong, or its times no evidence: it must not put others behind."""
        if any(report.saw.invalid for report in arm.reports):
            self.wrong[arm.name] = True
        if arm.stopped is None and arm.name not in self.wrong:
            if arm.cpus:
                # Which times are possible is judged by the CPUs that this process may use.
                use_cpus(arm.cpus)
            result = concluded(arm.attempt, arm.reports, arm.folder, self.references, arm.took_s)
            self.wrong[arm.name] = result.status is not Status.DONE or self._is_inaccurate(arm)
        return self.wrong.get(arm.name, False)

    def _is_inaccurate(self, arm: Arm) -> bool:
        """Whether it fails on the labelled data, or cannot be scored."""
        data = arm.job.plan.labelled
        if data is None or data.at_least is None:
            return False
        arm.do(arm.score_labelled)
        return arm.score is None or arm.score.verdict == "fail"

    def ratio(self, arm: Arm, base: Arm) -> Ratio | None:
        """Return an arm's ratio over a baseline that was right."""
        note = ""
        if len(arm.cpus) != len(base.cpus):
            note = f" (threads: {len(base.cpus)} against {len(arm.cpus)} here)"
        return paired_ratio(arm.blocks(base), base.job, self.lead.job.seed, _joint_allowance(arm, base), note)

    def judged_baseline(self, arm: Arm) -> Arm | None:
        """Return the baseline of an arm, once its own outputs were right; None for the baseline itself."""
        base = self.baseline
        if base is None or base is arm:
            return None
        # Where the arm ends before the others, the baseline is judged by what it has so far.
        result = base.result
        if not base.over and base.has_blocks:
            result = concluded(base.attempt, base.reports, base.folder, self.references, base.took_s)
        return base if result is not None and result.status is Status.DONE else None


def _joint_allowance(*arms: Arm) -> float:
    """Return what others took from the arm from which they took most."""
    return max(allowance_of(arm.blocks()) for arm in arms)


def _run_cold(arm: Arm) -> None:
    """Run the cold process of each tuning; one is enough for a delegate that chose nothing by timing."""
    for tuning in range(arm.tunings):
        arm.do(partial(arm.run_cold, tuning))
        if not arm.over and arm.reports[0].choices is None:
            # Another tuning would be the same one.
            arm.tunings = 1
            return


def _conclude(arm: Arm, measured: _Blocks) -> None:
    """Judge, sum up, take the ratio over the baseline, then run what follows the timed processes: the passes
    that were asked for, the labelled data. A cancelled arm has none of these. Raises `FailedError`.
    """
    write_progress(arm.folder, "judging")
    device, sensors = arm.attempt.device, measured.sensors
    arm.reports = [sensors.evidence(device, report) for report in arm.reports]
    result = concluded(arm.attempt, arm.reports, arm.folder, measured.references, arm.took_s)
    warnings = () if result.measurement is None else result.measurement.warnings
    doubts = [text for text in warnings if NONDETERMINISTIC in text][:1]
    energy = sensors.energy(device, arm.reports, alternated=arm.alternated)
    base = measured.judged_baseline(arm)
    result = over_blocks(result, arm.blocks(base))
    if result.status is Status.DONE and base is not None:
        result = with_figures(result, ratio=measured.ratio(arm, base))
        energy = energy_over(energy, device, arm.reports, base.attempt.device, base.reports)
    result = with_figures(result, energy=energy)
    other = None if measured.baseline is arm else measured.baseline
    for step in later_steps(arm, sensors, other):
        try:
            result = result if arm.cancelled else step(result)
        except CancelledError:
            arm.cancelled = True
        if arm.cancelled:
            arm.stopped = "cancelled"  # it is less than was asked for, whatever ended the blocks
    # Behind the passes: a cancel in one of them is a part of it.
    quality = quality_of(arm, measured.history, measured.facts, doubts)
    result = with_figures(result, quality=quality)
    update = {
        "samples_sha256": _write_samples(arm.folder, arm.reports),
        # Of the last process; where an earlier one had another, `quality` says so.
        "environment": arm.reports[-1].environment,
        "facts": as_facts([run.reading for run in measured.runs]) | host_tuning(),
    }
    arm.end(result.model_copy(update=update))


def _write_samples(folder: Path, reports: Sequence[ProcessReport]) -> str:
    """All raw samples as one JSON list; returns the sha256 of the file."""
    samples = [report.samples.model_dump(mode="json") for report in reports if report.samples is not None]
    data = json.dumps(samples, separators=(",", ":")).encode()
    write_atomically(folder / SAMPLES_FILE, data)
    return hashlib.sha256(data).hexdigest()
