"""The trust verdict of an attempt: what was seen around and during its processes, and what follows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal, TypeVar

from agent.attempt.files import AttemptFile, ProcessReport
from agent.machine.gate import WAITS, Gate
from agent.machine.workload import Reading, as_facts, why_vague
from agent.runner.tunings import by_tuning
from agent.runner.tunings import timed as timed_of
from agent.wire.measurement import ProcessSamples, Trust
from runtime.tools.drift import MIN_SAMPLES
from runtime.tools.honesty import CACHED, EARLY

APART: Final = 1.1
"""Factor between two processes' medians, beyond both their intervals, from which on they did not measure the
same. Chosen: placement in memory makes processes differ by a few per cent."""

MAX_WAIT_SHARE: Final = 0.2
"""Share of an attempt's time limit that it may spend waiting for a quiet machine."""

WORKLOAD: Final = "calibration workload"
MEDIANS: Final = "medians of the processes"
_FLAGS: Final = ("drift", "autocorrelated", "page_faults", EARLY)
"""Flags of a process that make its cell suspect; the others say how a figure is to be read."""

_VOID: Final = (CACHED,)
"""Flags of a process whose samples are not what an invoke takes. They make a cell invalid where most of its
timed processes have them; a memory does not forget, so one process alone met a busy machine: suspect."""

T = TypeVar("T")


@dataclass(slots=True)
class Guard:
    """Stands before and after every timed process of an attempt; `readings` are those of its workload.

    `waits`: whether the attempt's level waits for a quiet machine.
    """

    gate: Gate
    history: Sequence[Reading]
    waits: bool
    reasons: list[str] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)

    @classmethod
    def of(cls, attempt: AttemptFile, cpus: Collection[int], tell: Callable[[str], None]) -> Guard:
        """The guard of an attempt whose host lends the farm these CPUs."""
        history = [Reading(*pair) for pair in attempt.usual]
        waits = WAITS[attempt.job.plan.level]
        wait_s = MAX_WAIT_SHARE * attempt.job.soft_limit_s / max(waits, 1)
        gate = Gate(cpus, history, waits, tell)
        gate.wait_s = min(gate.wait_s, wait_s)
        return cls(gate, history, waits > 0)

    def around(self, index: int, run: Callable[[], T], *, timed: bool) -> T:
        """Run a process once the machine is quiet or waiting is over; one that is not timed, at once."""
        if not timed:
            return run()
        who = f"process {index + 1}"
        if self.waits:
            self._note(f"before {who}", self.gate.pass_quietly())
        before = self._work()
        result = run()
        # One reading alone may have met an interrupt; what lasts is in both.
        lasting = before.faster_of(self._work())
        self._note(f"before and after {who}", lasting.slower_than(self.history))
        return result

    def facts(self) -> dict[str, str]:
        """The readings of the workload, for the device's history."""
        return as_facts(self.readings)

    def _work(self) -> Reading:
        reading = Reading.now()
        self.readings.append(reading)
        return reading

    def _note(self, when: str, why: str | None) -> None:
        if why is not None:
            self.reasons.append(f"{when}: {why}")


def trust_of(guard: Guard, reports: Sequence[ProcessReport]) -> Trust:
    """Judge an attempt by its guard and the reports of its processes, the cold one first."""
    every = [(f"process {s.index + 1}", report) for report in reports if (s := report.samples)]
    timed = [(f"process {s.index + 1}", report) for report in timed_of(reports) if (s := report.samples)]
    suspect, invalid = list(guard.reasons), []
    for who, report in every:
        suspect += [f"{who}: {text}" for text in report.saw.suspect]
        invalid += [f"{who}: {text}" for text in report.saw.invalid]
        suspect += [f"{who}: {flag}" for flag in _flags(report.samples, _FLAGS)]
    void = [f"{who}: {flag}" for who, report in timed for flag in _flags(report.samples, _VOID)]
    (invalid if len(void) > len(timed) / 2 else suspect).extend(void)
    if (changed := _changed(reports)) is not None:
        invalid.append(changed)
    samples = [report.samples for _, report in timed if report.samples is not None]
    # Two tunings may have chosen unlike kernels; within one, nothing but a disturbance tells medians apart.
    suspect += [text for group in by_tuning(samples) if (text := _apart(group)) is not None]
    verdict: Literal["trusted", "suspect", "invalid"] = (
        "invalid" if invalid else "suspect" if suspect else "trusted"
    )
    seen, unseen = _signals(guard, [report for _, report in timed], samples)
    return Trust(verdict=verdict, reasons=(*invalid, *suspect), seen=seen, unseen=unseen)


def _flags(samples: ProcessSamples | None, names: Collection[str]) -> list[str]:
    flags = () if samples is None else samples.flags
    return [flag for flag in flags if flag.partition(":")[0] in names]


def _changed(reports: Sequence[ProcessReport]) -> str | None:
    """Say what of the environment changed from one process to the next."""
    known = [report.environment for report in reports if report.environment]
    for before, after in pairwise(known):
        names = sorted(name for name in before | after if before.get(name) != after.get(name))
        if names:
            first = names[0]
            return f"{first} changed while it was measured: {before.get(first)} to {after.get(first)}"
    return None


def _apart(samples: Sequence[ProcessSamples]) -> str | None:
    """Say which processes' medians are further apart than their own intervals allow."""
    intervals = [(_interval(s), s.index + 1) for s in samples]
    known = [(low, high, number) for (low, high), number in intervals if low is not None]
    bounded = [(high, number) for _, high, number in known if high is not None]
    if not known or not bounded:
        return None
    slow, slowest = max((low, number) for low, _, number in known)
    fast, fastest = min(bounded)
    if slow <= APART * fast:
        return None
    return f"the median of process {slowest} is {slow / fast - 1:.0%} above that of process {fastest}"


def _interval(samples: ProcessSamples) -> tuple[int | None, int | None]:
    low, _, high = samples.facts.get("p50_interval_ns", "").partition("..")
    return tuple(int(end) if end.isdecimal() else None for end in (low, high))  # type: ignore[return-value]  # two ends


def _signals(
    guard: Guard, timed: Sequence[ProcessReport], samples: Sequence[ProcessSamples]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The signals that every timed process had, and those that one lacked."""
    unseen = list(_once(text for report in timed for text in report.saw.unseen))
    lacking = {text.partition(":")[0] for text in unseen}
    seen = [name for name in _once(text for r in timed for text in r.saw.seen) if name not in lacking]
    seen += ["page faults", "new inputs", "early return"]
    fewest = min((len(s.invoke_ns) for s in samples), default=0)
    _sort_in(
        fewest >= MIN_SAMPLES, "drift", f"{fewest} samples of a process; it needs {MIN_SAMPLES}", seen, unseen
    )
    _sort_in(len(samples) > 1, MEDIANS, "one process alone", seen, unseen)
    vague = why_vague(guard.history)
    _sort_in(vague is None, WORKLOAD, vague or "", seen, unseen)
    return tuple(seen), tuple(unseen)


def _sort_in(there: bool, name: str, why: str, seen: list[str], unseen: list[str]) -> None:
    (seen if there else unseen).append(name if there else f"{name}: {why}")


def _once(texts: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(texts)
