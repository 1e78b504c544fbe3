"""Tunings: the processes of a cell are spread over independent ones, each with program caches of its own.

A tuning begins with a cold process, in which the delegate chooses by timing; the timed processes of the
tuning are given what it chose. The first cold process is 0, and the timed ones take turns over the tunings
from 1 on, so that what drifts meanwhile is in all of them alike; behind those are numbered those of blocks
that are measured once more, then the other cold processes.
"""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from agent.attempt.files import ProcessReport, report_path
from agent.wire.bounded import MAX_TEXT
from agent.wire.measurement import ProcessSamples, Tuning
from agent.wire.messages import JobSpec
from agent.wire.plan import MeasurePlan
from runtime.delegates.descriptor import CHOICES, DelegateDescriptor

COLD = 0
"""The block of the processes that find empty program caches; those of the others are timed."""


def planned_tunings(job: JobSpec, descriptor: DelegateDescriptor) -> int:
    """Return how many tunings an attempt is to have: one where nothing is left to choose by timing."""
    if not descriptor.tunes or CHOICES in job.delegate_options:
        return 1
    # Each tuning has a block of its own, even where no more than the fewest are measured.
    return min(job.plan.tunings, job.plan.min_blocks)


def cold_index(tuning: int, plan: MeasurePlan) -> int:
    """Return the number of the process with which a tuning begins."""
    return 0 if tuning == 0 else plan.max_blocks + plan.most_repeated + tuning


def is_cold(index: int, plan: MeasurePlan) -> bool:
    """Return whether a process begins a tuning."""
    return index == 0 or index > plan.max_blocks + plan.most_repeated


def tuning_of(block: int, tunings: int) -> int:
    """Return the tuning of a timed process, by its block."""
    return (block - 1) % tunings


def given_choices(
    folder: Path, index: int, tuning: int, job: JobSpec, descriptor: DelegateDescriptor
) -> Mapping[str, str]:
    """Return the option by which a timed process uses what its tuning's first one chose; empty for others."""
    if is_cold(index, job.plan) or not descriptor.tunes:
        return {}
    first = report_path(folder, cold_index(tuning, job.plan))
    choices = ProcessReport.model_validate_json(first.read_bytes()).choices
    return {} if choices is None else {CHOICES: choices}


def cold(reports: Sequence[ProcessReport]) -> list[ProcessReport]:
    """Return the processes that found empty caches, in the order of their tunings."""
    return [report for report in reports if report.samples is not None and report.samples.cache == "cold"]


def timed(reports: Sequence[ProcessReport]) -> list[ProcessReport]:
    """Return the processes that were timed."""
    return [report for report in reports if report.samples is not None and report.samples.cache == "warm"]


def by_tuning(samples: Sequence[ProcessSamples]) -> list[list[ProcessSamples]]:
    """Return the timed processes of each tuning."""
    ordered = sorted((s for s in samples if s.cache == "warm"), key=lambda s: (s.tuning, s.index))
    return [list(group) for _, group in groupby(ordered, key=lambda s: s.tuning)]


def tunings(reports: Sequence[ProcessReport]) -> tuple[Tuning, ...]:
    """Return what each tuning chose; nothing of a delegate that chooses nothing by timing."""
    users = [report.samples.tuning for report in timed(reports) if report.samples is not None]
    return tuple(
        Tuning(
            sha256=hashlib.sha256(report.choices.encode()).hexdigest(),
            choices=report.choices if len(report.choices) <= MAX_TEXT else None,
            processes=users.count(tuning),
        )
        for tuning, report in enumerate(cold(reports))
        if report.choices is not None
    )
