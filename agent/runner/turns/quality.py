"""Sums up the evidence for an arm's figures: integrity, what others took, and how it was measured."""

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Final

from agent.attempt.files import ProcessReport
from agent.machine.workload import Reading, why_vague
from agent.processes.sandbox.inner import lacking
from agent.runner.judge.blocks import allowance_of, slice_medians
from agent.runner.tunings import timed as timed_of
from agent.runner.turns.arm import Arm
from agent.wire.measurement import ProcessSamples, Quality
from runtime.measure.honesty import CACHED, EARLY

UNSTEADY: Final = 1.25
"""Factor by which the last third of the rounds differs from the first in a process that is not steady.
Chosen: a device that slows itself down lowers its clocks by about as much, and a CPU path that is honest was
seen to become 12 % slower in each of three processes, by the state of the machine."""

LEAST_STEADY: Final = 3
"""Processes and rounds below which nothing is said of steadiness: fewer agree by chance."""

_FACTS: Final = ("drift", "autocorrelated", "page_faults", "timer_overhead")
"""Flags of a process that are facts behind its cell; they change no grade."""


def quality_of(
    arm: Arm, history: Sequence[Reading], notes: Sequence[str], doubts: Sequence[str] = ()
) -> Quality:
    """Return the quality of an arm's measurement.

    `notes`: what was seen before its blocks; `doubts`: what its outputs say against it.
    """
    timed = [(f"block {s.index}", report) for report in timed_of(arm.reports) if (s := report.samples)]
    blocks = arm.blocks()
    facts = [*notes]
    if arm.stopped == "cancelled":
        most = arm.job.plan.max_blocks
        facts.insert(0, f"ended early by a cancel, after {len(blocks)} of at most {most} blocks")
    void: list[str] = []
    for who, report in timed:
        void += [f"{who}: {text}" for text in report.saw.invalid]
        facts += [f"{who}: {text}" for text in report.saw.suspect]
        facts += [f"{who}: {flag}" for flag in _flags(report.samples, _FACTS)]
    void += _of_most([report for _, report in timed], CACHED)
    cold = [report for report in arm.reports if report.samples and report.samples.cache == "cold"]
    for why in (_changed(arm.reports), _unsteady([r.samples for _, r in timed if r.samples])):
        if why is not None:
            void.append(why)
    seen, unseen = _signals(history, [report for _, report in timed])
    return Quality(
        void=tuple(void),
        doubts=(*_of_most(cold, EARLY), *doubts),
        allowance=allowance_of(blocks),
        blocks=len(blocks),
        rounds=sum(block.rounds for block in blocks),
        repeated=sum(block.repeated for block in blocks),
        repeated_blocks=sum(block.again for block in blocks),
        alternating=arm.alternated,
        stopped=arm.stopped or "",
        facts=tuple(facts),
        seen=seen,
        unseen=(*unseen, *(f"boundary of an arm: {text}" for text in lacking())),
    )


def _flags(samples: ProcessSamples | None, names: Collection[str]) -> list[str]:
    flags = () if samples is None else samples.flags
    return [flag for flag in flags if flag.partition(":")[0] in names]


def _of_most(reports: Sequence[ProcessReport], name: str) -> list[str]:
    """Return the flag of this name where more than half of the processes have it, with their number.

    A process alone may have met a busy machine; what a delegate does, it does in most of them.
    """
    flags = [flag for report in reports for flag in _flags(report.samples, (name,))]
    if 2 * len(flags) <= len(reports):
        return []
    return [f"{flags[0]} ({len(flags)} of {len(reports)} processes)"]


def _changed(reports: Sequence[ProcessReport]) -> str | None:
    """Say what of the environment changed from one process to the next."""
    known = [report.environment for report in reports if report.environment]
    for before, after in pairwise(known):
        names = sorted(name for name in before | after if before.get(name) != after.get(name))
        if names:
            first = names[0]
            return f"{first} changed while it was measured: {before.get(first)} to {after.get(first)}"
    return None


def _unsteady(samples: Sequence[ProcessSamples]) -> str | None:
    """Say that every process changes its speed in the same direction from its first rounds to its last."""
    changes = []
    for process in samples:
        medians = list(slice_medians(process).values())
        # No slice of it counts: its block was measured once more.
        if not medians:
            continue
        third = len(medians) // 3
        # One process with too few rounds, or with times of 0, leaves the steadiness of all unknown.
        if third == 0 or not min(medians):
            return None
        changes.append(median(medians[-third:]) / median(medians[:third]))
    if len(changes) < LEAST_STEADY:
        return None
    if min(changes) > UNSTEADY:
        return f"not steady: each process slows down by {min(changes) - 1:.0%} or more while it is timed"
    if max(changes) < 1 / UNSTEADY:
        return f"not steady: each process speeds up by {1 / max(changes) - 1:.0%} or more while it is timed"
    return None


def _signals(
    history: Sequence[Reading], timed: Sequence[ProcessReport]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the signals that every timed process had, and those that one lacked."""
    unseen = list(_once(text for report in timed for text in report.saw.unseen))
    lacking = {text.partition(":")[0] for text in unseen}
    seen = [name for name in _once(text for r in timed for text in r.saw.seen) if name not in lacking]
    seen += ["page faults", "new inputs", "early return", "reported times"]
    vague = why_vague(history)
    if vague is None:
        seen.append("calibration workload")
    else:
        unseen.append(f"calibration workload: {vague}")
    return tuple(seen), tuple(unseen)


def _once(texts: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(texts)
