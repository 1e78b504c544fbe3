"""A timed block: one fresh process of each arm, all alive together, which take turns by slices.

The state of a machine changes within a tenth of a second to two seconds. Slices of a tenth of a second that
alternate meet the same states, so that a ratio of two slices of one round hardly sees them. An arm that waits
is stopped: its threads neither spin nor compute. A round that others disturbed, by the kernel's counters, is
repeated at once; where that is the rule and not the exception, all rounds are kept as they are, and the block
may be measured once more.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Final

from agent.attempt.files import ProcessReport, Seen
from agent.machine.cgroups import room_bytes
from agent.machine.counters import Counters, ThreadTimes, Window
from agent.machine.device_use import DeviceUse
from agent.machine.disturbance import disturbances
from agent.machine.rounds import Round, SliceUse, taken, whole
from agent.machine.scheduling import Scheduling, change, of_threads
from agent.machine.workload import Reading
from agent.runner.channel import SliceTimes
from agent.runner.judge.blocks import drawn_order, order_of_round
from agent.runner.judge.stopping import Cost
from agent.runner.passes.telemetry import LEAST_TURN_S, TURNS_ENERGY, Telemetry, part_of
from agent.runner.tunings import tuning_of
from agent.runner.turns import calibration
from agent.runner.turns.arm import Arm
from agent.runner.turns.process import facts_of, with_slices
from agent.wire.measurement import TimedSlice
from agent.wire.plan import MeasurePlan
from runtime.measure.benchmark import untimed_before

MEMORY_MARGIN: Final = 1.3
"""How many times the memory of their cold processes the arms of a block need at most to be alive together.
Chosen: timed processes keep samples, and an estimate that is too small ends in an arm that is killed."""

LEAST_REPORTED: Final = 0.5
"""Share of the wall time of undisturbed slices that their invokes must add up to, with the untimed ones in
front of each. Chosen: reading inputs and outputs from Python is within them, so that little is left; a clock
that was tampered with shows here."""

LEAST_WALL_S: Final = 0.3
"""Seconds of slices below which that is not asked: of slices of milliseconds, handing over the samples takes
a good part."""

MOST_STOPPED_S: Final = 0.02
"""Seconds of CPU time that a stopped process may have used in a block: its threads end what they do in the
kernel. Chosen; one that wakes itself up to disturb the others uses more."""


@dataclass(slots=True)
class _Part:
    """An arm within a block: its process's slices so far, and how many invokes each has.

    `stopped`: the CPU time of its threads when they were stopped last; `ran_stopped_s`: how much they used
    although they were. `turns`: when each slice began and ended, in ns; `joules`: the energy that the
    processors used in it. `arms`: how many processes of the block have its part of the machine.
    `scheduling`: that of its threads before the first slice; `changed`: how it was different after the last.
    """

    arm: Arm
    runs: int = 1
    times: dict[int, SliceTimes] = field(default_factory=dict)
    stopped: ThreadTimes | None = None
    ran_stopped_s: float = 0.0
    turns: dict[int, tuple[int, int]] = field(default_factory=dict)
    joules: dict[int, float] = field(default_factory=dict)
    arms: int = 1
    scheduling: Mapping[int, Scheduling] = field(default_factory=dict)
    changed: str | None = None


def fit_together(arms: Sequence[Arm]) -> bool:
    """Whether the memory is enough for all arms at once, by what their cold processes took."""
    room = room_bytes()
    samples = [report.samples for arm in arms for report in arm.reports[:1]]
    # The peak is told as the growth over what the process had before it loaded the model.
    need = sum(s.memory_before_bytes + s.memory_peak_bytes for s in samples if s is not None)
    return room is None or MEMORY_MARGIN * need <= room


@dataclass(frozen=True, slots=True)
class BlockAsked:
    """A block that is to be measured: its number, how many rounds it has, and the number of its processes
    among those of each arm, which is that of the block but where it is measured once more.
    """

    number: int
    rounds: int
    index: int


@dataclass(frozen=True, slots=True)
class BlockRun:
    """The facts of a block beside its figures. `reading`: of the calibration workload in it; `disturbed`:
    whether others disturbed most rounds, so that all of them count.
    """

    asked: BlockAsked
    reading: Reading
    cost: Cost
    disturbed: bool


def run_block(
    arms: Sequence[Arm],
    asked: BlockAsked,
    seed: int,
    sensors: Telemetry,
    between: Callable[[], None],
    *,
    together: bool,
) -> BlockRun:
    """Run a block with these arms; `sensors` are read meanwhile.

    Each arm that does not fail gets a report and its kept rounds. Arms that are not `together` run their
    rounds one after another. `between` is called between two turns.
    """
    began_s = time.monotonic()
    named = {arm.name: arm for arm in arms}
    ordered = [named[name] for name in drawn_order(named, seed, asked.number)]
    groups = [ordered] if together else [[arm] for arm in ordered]
    blocks = [_Block(group, asked, arms[0].job.plan, sensors, between) for group in groups]
    # One in any case: a block whose arms all fail has no round.
    readings = [calibration.read()]
    for block in blocks:
        readings += block.run()
    besides_s = time.monotonic() - began_s - sum(block.rounds_s for block in blocks)
    rounds = max(len(block.rounds) for block in blocks)
    round_s = sum(block.rounds_s / max(1, len(block.rounds)) for block in blocks)
    disturbed = any(block.keeps_all for block in blocks)
    return BlockRun(asked, Reading.typical(readings), Cost(rounds, round_s, besides_s), disturbed)


class _Block:
    def __init__(
        self,
        arms: Sequence[Arm],
        asked: BlockAsked,
        plan: MeasurePlan,
        sensors: Telemetry,
        between: Callable[[], None],
    ) -> None:
        self._parts = [_Part(arm) for arm in arms]
        self._asked, self._plan, self._sensors, self._between = asked, plan, sensors, between
        self._cpus = sorted({cpu for arm in arms for cpu in arm.allowed})
        self.rounds: list[Round] = []
        self.rounds_s = 0.0

    @property
    def _alive(self) -> list[_Part]:
        return [part for part in self._parts if part.arm.live is not None]

    def run(self) -> list[Reading]:
        """Run all rounds; return what the calibration workload took between them."""
        readings = []
        # They import their modules at the same time; then each opens its model alone, and is stopped.
        for part in self._parts:
            part.arm.do(partial(self._start, part))
        for part in self._alive:
            part.arm.do(partial(_wait_loaded, part))
        for part in self._alive:
            part.arm.do(partial(self._open, part))
        began_s = time.monotonic()
        while self._alive and not self._is_enough():
            self._round()
            readings.append(calibration.read())
        self.rounds_s = time.monotonic() - began_s
        for part in self._alive:
            part.arm.do(partial(self._finish, part))
        for part in self._parts:
            part.arm.drop_process()
        return readings

    def _start(self, part: _Part) -> None:
        arm = part.arm
        number = self._asked.number
        again = ", once more" if self._asked.index != number else ""
        who = f"block {number} of at most {self._plan.max_blocks}{again}"
        arm.start_process(self._asked.index, tuning_of(number, arm.tunings), who)

    def _open(self, part: _Part) -> None:
        process = part.arm.live
        assert process is not None
        before_s = part.arm.clock.used_s
        process.open()
        part.arm.took_s[self._asked.index] = part.arm.clock.used_s - before_s
        process.stop()
        part.stopped = ThreadTimes.of(process.pid)
        part.scheduling = of_threads(process.pid)
        filling = math.ceil(self._plan.slice_seconds * 1e9 / process.run_ns)
        part.runs = min(self._plan.most_slice_runs(self._asked.rounds), max(self._plan.slice_runs, filling))

    @property
    def _clean(self) -> list[int]:
        return [number for number, one in enumerate(self.rounds) if one.disturbed is None]

    @property
    def _disturbed(self) -> int:
        return len(self.rounds) - len(self._clean)

    @property
    def keeps_all(self) -> bool:
        """Whether disturbance is the rule here, so that to drop rounds would be to choose among them."""
        return self._disturbed > self._asked.rounds // 2

    def _is_enough(self) -> bool:
        counted = len(self.rounds) - (0 if self.keeps_all else self._disturbed)
        return counted >= self._asked.rounds

    def _round(self) -> None:
        number = len(self.rounds)
        uses: dict[str, SliceUse] = {}
        before, measured_s = Counters.now(self._cpus), 0.0
        parts = self._alive
        for place in order_of_round(len(parts), number):
            part = parts[place]
            part.arm.do(partial(self._slice, part, number, uses))
            self._between()
        # These processes live on, and getrusage(2) counts only children that were waited for.
        measured_s = sum(use.ran_s or 0.0 for use in uses.values())
        window = Window.between(before, Counters.now(self._cpus), len(self._cpus), measured_s)
        self.rounds.append(Round(window, uses))

    def _slice(self, part: _Part, number: int, uses: dict[str, SliceUse]) -> None:
        process = part.arm.live
        assert process is not None
        # Still stopped: what it ran since the end of its last turn, it ran in the turns of others.
        before, began_s = ThreadTimes.of(process.pid), time.monotonic()
        if before is not None and part.stopped is not None:
            # The first of the two is CPU time, the other one waiting.
            part.ran_stopped_s += before.since(part.stopped)[0]
        device = part.arm.attempt.device
        from_j = self._sensors.joules(device)
        process.go()
        part.times[number] = process.slice(part.runs)
        # Before anything is read: from here on nothing more belongs to this turn.
        process.stop()
        to_j = self._sensors.joules(device)
        ended_s, after = time.monotonic(), ThreadTimes.of(process.pid)
        part.stopped = after
        wall_s = ended_s - began_s
        if from_j is not None and to_j is not None:
            part.joules[number] = to_j - from_j
        part.turns[number] = int(began_s * 1e9), int(ended_s * 1e9)
        ran, waited = (None, None) if before is None or after is None else after.since(before)
        same_part = sum(part_of(one.arm.attempt.device) == part_of(device) for one in self._alive)
        part.arms = max(part.arms, same_part)
        seen = self._sensors.disturbing(device, began_s, ended_s, part.arms)
        uses[part.arm.name] = SliceUse(wall_s, len(part.arm.cpus), ran, waited, seen)
        part.arm.took_s[self._asked.index] += wall_s

    def _finish(self, part: _Part) -> None:
        process, arm = part.arm.live, part.arm
        assert process is not None
        uses = [one.slices[arm.name] for one in self.rounds]
        ran_s, wall_s = sum(use.ran_s or 0.0 for use in uses), sum(use.wall_s for use in uses)
        # From outside: what the process says of itself is not asked for.
        device_use = DeviceUse.of(process.pid, len(arm.cpus), ran_s, wall_s)
        part.changed = change(part.scheduling, of_threads(process.pid))
        process.go()
        before_s = arm.clock.used_s
        report = process.finish()
        arm.took_s[self._asked.index] += arm.clock.used_s - before_s
        arm.live = None
        arm.alternated = arm.alternated or len(self._parts) > 1
        kept = [one for one in self.rounds if self.keeps_all or one.disturbed is None]
        arm.rounds[self._asked.index] = kept
        arm.reports.append(self._completed(report, part, kept, device_use))

    def _completed(
        self, report: ProcessReport, part: _Part, kept: Sequence[Round], device_use: DeviceUse
    ) -> ProcessReport:
        """Complete a report with the samples of its slices, and with the observations around them."""
        name, device = part.arm.name, part.arm.attempt.device
        invoke_ns = tuple(ns for times in part.times.values() for ns in times.invoke_ns)
        start_ns = tuple(ns for times in part.times.values() for ns in times.start_ns)
        window = whole(one.window for one in self.rounds)
        slices = tuple(
            TimedSlice(
                round=number, runs=len(times.invoke_ns), taken=taken([self.rounds[number]], name),
                kept=self.rounds[number] in kept,
                cpu_ns=None if (ran_s := self._ran_s(number, name)) is None else int(ran_s * 1e9),
            )
            for number, times in part.times.items()
        )  # fmt: skip
        evidence = [disturbances(window)]
        if device.api != "host":
            evidence.append(device_use.judged(is_gpu=device.kind == "gpu"))
        found = [disturbance for one in evidence for disturbance in one.found]
        impossible = self._impossible(part)
        samples = report.samples
        assert samples is not None
        return report.model_copy(
            update={
                "samples": with_slices(samples, invoke_ns, start_ns, slices, self._facts(part, window, kept)),
                "turns": tuple(part.turns[one.round] for one in slices if one.kept),
                "arms": part.arms,
                "saw": Seen(
                    suspect=tuple(d.text for d in found if not d.invalidates),
                    invalid=(*impossible, *(d.text for d in found if d.invalidates)),
                    seen=tuple(name for one in evidence for name in one.seen),
                    unseen=tuple(text for one in evidence for text in one.unseen),
                ),
            }
        )

    def _ran_s(self, number: int, name: str) -> float | None:
        return self.rounds[number].slices[name].ran_s

    def _facts(self, part: _Part, window: Window, kept: Sequence[Round]) -> dict[str, str]:
        """Return the counters around the rounds, the energy of a call in the kept ones, and how the process's
        first thread was scheduled.
        """
        first = min(part.scheduling, default=0)
        scheduled = {"scheduling": str(part.scheduling[first])} if first else {}
        energy = self._energy(part, [number for number in part.times if self.rounds[number] in kept])
        counted = {} if energy is None else {TURNS_ENERGY: f"{energy:.6g}"}
        return facts_of(window, self.rounds) | scheduled | counted

    def _energy(self, part: _Part, kept: Sequence[int]) -> float | None:
        """Return the joules of one call: the mean power in the turns that count, for the time of a call."""
        wall_s = sum(self.rounds[number].slices[part.arm.name].wall_s for number in kept)
        # Also where no round is kept: 0 s are no more than 0 turns need.
        if not part.joules.keys() >= set(kept) or wall_s <= LEAST_TURN_S * len(kept):
            return None
        invoke_ns = [ns for number in kept for ns in part.times[number].invoke_ns]
        return sum(part.joules[number] for number in kept) / wall_s * fmean(invoke_ns) / 1e9

    def _impossible(self, part: _Part) -> tuple[str, ...]:
        """Say how the process contradicts what passed: impossible times, or turns that were not its own."""
        found = []
        # The share of a slice's invokes that are timed.
        timed = part.runs / (part.runs + untimed_before(part.runs))
        # In all rounds the invokes must fit into the slices; in the clean
        # ones they must fill enough of them, too.
        for numbers, least in ((range(len(self.rounds)), 0.0), (self._clean, LEAST_REPORTED * timed)):
            wall_s = sum(self.rounds[number].slices[part.arm.name].wall_s for number in numbers)
            reported_s = sum(sum(part.times[number].invoke_ns) for number in numbers) / 1e9
            least_s = least * wall_s if wall_s >= LEAST_WALL_S else 0.0
            if not least_s <= reported_s <= wall_s:
                said = f"its invokes add up to {reported_s:.3g} s in slices that took {wall_s:.3g} s"
                found.append(f"the process reports times that cannot be: {said}")
                break
        if part.ran_stopped_s > MOST_STOPPED_S:
            found.append(f"the process ran for {part.ran_stopped_s:.3f} s while it was stopped")
        if part.changed is not None:
            found.append(part.changed)
        return tuple(found)


def _wait_loaded(part: _Part) -> None:
    assert part.arm.live is not None
    part.arm.live.wait_loaded()
