"""A timed block: one fresh process of each arm, all alive together, which take turns by slices.

The state of a machine changes within a tenth of a second to two seconds. Slices of a tenth of a second that
alternate meet the same states, so that a ratio of two slices of one round hardly sees them. An arm that waits
is stopped: its threads neither spin nor compute. A round that others disturbed, by the kernel's counters, is
repeated at once; where that is the rule and not the exception, all rounds are kept as they are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from agent.attempt.files import ProcessReport, Seen
from agent.machine.counters import Counters, ThreadTimes, Window
from agent.machine.device_use import DeviceUse
from agent.machine.disturbance import disturbances
from agent.machine.room import room_bytes
from agent.machine.rounds import Round, SliceUse, taken, whole
from agent.machine.workload import Reading
from agent.runner import calibration
from agent.runner.arm import Arm
from agent.runner.blocks import drawn_order, order_of_round
from agent.runner.channel import SliceTimes
from agent.runner.tunings import tuning_of
from agent.wire.measurement import ProcessSamples, TimedSlice
from agent.wire.plan import MeasurePlan

MEMORY_MARGIN: Final = 1.3
"""How many times the memory of their cold processes the arms of a block need at most to be alive together.
Chosen: timed processes keep samples, and an estimate that is too small ends in an arm that is killed."""

LEAST_REPORTED: Final = 0.5
"""Share of the wall time of undisturbed slices that their invokes must add up to. Chosen: reading inputs and
outputs from Python is within them, so that little is left; a clock that was tampered with shows here."""


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
    although they were.
    """

    arm: Arm
    runs: int = 1
    times: dict[int, SliceTimes] = field(default_factory=dict)
    stopped: ThreadTimes | None = None
    ran_stopped_s: float = 0.0


def fit_together(arms: Sequence[Arm]) -> bool:
    """Whether the memory is enough for all arms at once, by what their cold processes took."""
    room = room_bytes()
    samples = [report.samples for arm in arms for report in arm.reports[:1]]
    need = sum(s.memory_before_bytes + s.memory_peak_bytes for s in samples if s is not None)
    return room is None or MEMORY_MARGIN * need <= room


def run_block(
    arms: Sequence[Arm], number: int, seed: int, between: Callable[[], None], *, together: bool
) -> Reading:
    """Run block `number` with these arms; return the reading of the calibration workload in it.

    Each arm that does not fail gets a report and its kept rounds. Arms that are not `together` run their
    rounds one after another. `between` is called between two turns.
    """
    named = {arm.name: arm for arm in arms}
    ordered = [named[name] for name in drawn_order(named, seed, number)]
    groups = [ordered] if together else [[arm] for arm in ordered]
    blocks = [_Block(group, number, arms[0].job.plan, between) for group in groups]
    readings = [calibration.read()]
    for block in blocks:
        readings += block.run()
    return Reading.typical(readings)


class _Block:
    def __init__(
        self, arms: Sequence[Arm], number: int, plan: MeasurePlan, between: Callable[[], None]
    ) -> None:
        self._parts = [_Part(arm) for arm in arms]
        self._number, self._plan, self._between = number, plan, between
        self._cpus = sorted({cpu for arm in arms for cpu in arm.allowed})
        self._rounds: list[Round] = []

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
        while self._alive and not self._is_enough():
            self._round()
            readings.append(calibration.read())
        for part in self._alive:
            part.arm.do(partial(self._finish, part))
        for part in self._parts:
            part.arm.drop_process()
        return readings

    def _start(self, part: _Part) -> None:
        arm = part.arm
        who = f"block {self._number} of at most {self._plan.max_blocks}"
        arm.start_process(self._number, tuning_of(self._number, arm.tunings), who)

    def _open(self, part: _Part) -> None:
        process = part.arm.live
        assert process is not None
        before_s = part.arm.clock.used_s
        process.open()
        part.arm.took_s[self._number] = part.arm.clock.used_s - before_s
        process.stop()
        part.stopped = ThreadTimes.of(process.pid)
        filling = math.ceil(self._plan.slice_seconds * 1e9 / process.run_ns)
        part.runs = min(self._plan.most_slice_runs, max(self._plan.slice_runs, filling))

    @property
    def _clean(self) -> list[int]:
        return [number for number, one in enumerate(self._rounds) if one.disturbed is None]

    @property
    def _disturbed(self) -> int:
        return len(self._rounds) - len(self._clean)

    @property
    def _keeps_all(self) -> bool:
        """Whether disturbance is the rule here, so that to drop rounds would be to choose among them."""
        return self._disturbed > self._plan.rounds // 2

    def _is_enough(self) -> bool:
        counted = len(self._rounds) - (0 if self._keeps_all else self._disturbed)
        return counted >= self._plan.rounds

    def _round(self) -> None:
        number = len(self._rounds)
        uses: dict[str, SliceUse] = {}
        before, measured_s = Counters.now(self._cpus), 0.0
        parts = self._alive
        for place in order_of_round(len(parts), number):
            part = parts[place]
            part.arm.do(partial(self._slice, part, number, uses))
            self._between()
        measured_s = sum(use.ran_s or 0.0 for use in uses.values())
        window = Window.between(before, Counters.now(self._cpus), len(self._cpus), measured_s)
        self._rounds.append(Round(window, uses))

    def _slice(self, part: _Part, number: int, uses: dict[str, SliceUse]) -> None:
        process = part.arm.live
        assert process is not None
        before, began_s = ThreadTimes.of(process.pid), time.monotonic()
        if before is not None and part.stopped is not None:
            part.ran_stopped_s += before.since(part.stopped)[0]
        process.go()
        part.times[number] = process.slice(part.runs)
        process.stop()
        wall_s, after = time.monotonic() - began_s, ThreadTimes.of(process.pid)
        part.stopped = after
        ran, waited = (None, None) if before is None or after is None else after.since(before)
        uses[part.arm.name] = SliceUse(wall_s, len(part.arm.cpus), ran, waited)
        part.arm.took_s[self._number] += wall_s

    def _finish(self, part: _Part) -> None:
        process, arm = part.arm.live, part.arm
        assert process is not None
        uses = [one.slices[arm.name] for one in self._rounds]
        ran_s, wall_s = sum(use.ran_s or 0.0 for use in uses), sum(use.wall_s for use in uses)
        # From outside: what the process says of itself is not asked for.
        device_use = DeviceUse.of(process.pid, len(arm.cpus), ran_s, wall_s)
        process.go()
        before_s = arm.clock.used_s
        report = process.finish()
        arm.took_s[self._number] += arm.clock.used_s - before_s
        arm.live = None
        arm.alternated = arm.alternated or len(self._parts) > 1
        kept = [one for one in self._rounds if self._keeps_all or one.disturbed is None]
        arm.rounds[self._number] = kept
        arm.reports.append(self._completed(report, part, kept, device_use))

    def _completed(
        self, report: ProcessReport, part: _Part, kept: Sequence[Round], device_use: DeviceUse
    ) -> ProcessReport:
        """The report with the samples that the slices gave, and with what was seen around them."""
        name, device = part.arm.name, part.arm.attempt.device
        invoke_ns = tuple(ns for times in part.times.values() for ns in times.invoke_ns)
        start_ns = tuple(ns for times in part.times.values() for ns in times.start_ns)
        window = whole(one.window for one in self._rounds)
        slices = tuple(
            TimedSlice(
                round=number, runs=len(times.invoke_ns), taken=taken([self._rounds[number]], name),
                kept=self._rounds[number] in kept,
            )
            for number, times in part.times.items()
        )  # fmt: skip
        evidence = [disturbances(window)]
        if device.api == "opencl":
            evidence.append(device_use.judged(is_gpu=device.kind == "gpu"))
        found = [disturbance for one in evidence for disturbance in one.found]
        impossible = self._impossible(part)
        samples = report.samples
        assert samples is not None
        return report.model_copy(
            update={
                "samples": _with_slices(samples, invoke_ns, start_ns, slices, _facts(window, self._rounds)),
                "saw": Seen(
                    suspect=tuple(d.text for d in found if not d.invalidates),
                    invalid=(*impossible, *(d.text for d in found if d.invalidates)),
                    seen=tuple(name for one in evidence for name in one.seen),
                    unseen=tuple(text for one in evidence for text in one.unseen),
                ),
            }
        )

    def _impossible(self, part: _Part) -> tuple[str, ...]:
        """Say how the process contradicts what passed: impossible times, or turns that were not its own."""
        found = []
        for numbers, least in ((range(len(self._rounds)), 0.0), (self._clean, LEAST_REPORTED)):
            wall_s = sum(self._rounds[number].slices[part.arm.name].wall_s for number in numbers)
            reported_s = sum(sum(part.times[number].invoke_ns) for number in numbers) / 1e9
            least_s = least * wall_s if wall_s >= LEAST_WALL_S else 0.0
            if not least_s <= reported_s <= wall_s:
                said = f"its invokes add up to {reported_s:.3g} s in slices that took {wall_s:.3g} s"
                found.append(f"the process reports times that cannot be: {said}")
                break
        if part.ran_stopped_s > MOST_STOPPED_S:
            found.append(f"the process ran for {part.ran_stopped_s:.3f} s while it was stopped")
        return tuple(found)


def _wait_loaded(part: _Part) -> None:
    assert part.arm.live is not None
    part.arm.live.wait_loaded()


def _with_slices(
    samples: ProcessSamples,
    invoke_ns: Sequence[int],
    start_ns: Sequence[int],
    slices: Sequence[TimedSlice],
    facts: Mapping[str, str],
) -> ProcessSamples:
    first_ns = start_ns[0] if start_ns else 0
    return samples.model_copy(
        update={
            "invoke_ns": tuple(invoke_ns),
            "start_ns": tuple(ns - first_ns for ns in start_ns),
            "slices": tuple(slices),
            "facts": {**samples.facts, **facts},
        }
    )


def _facts(window: Window, rounds: Sequence[Round]) -> dict[str, str]:
    """The counters around the rounds of a block, as a result records them."""
    last = rounds[-1].window
    counted = {
        "watched_s": last.from_s + last.wall_s - rounds[0].window.from_s,
        "foreign_cpu_s": window.foreign_s,
        "steal_s": window.steal_s,
        "throttled_s": window.throttled_s,
        "cpu_waiting_s": window.waiting_s,
    }
    facts = {name: f"{value:.3f}" for name, value in counted.items() if value is not None}
    # On the clock of the samples, for whoever looks for what happened meanwhile.
    return {"timed_from_s": f"{rounds[0].window.from_s:.6f}", **facts}
