"""Runs the passes after the timed processes of an arm: the requested ones, and the labelled data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from agent.attempt.files import (
    ProfileReport,
    RunnerResult,
    StepsReport,
    SustainedReport,
    ThroughputReport,
)
from agent.runner.advice import with_times
from agent.runner.failures import failure_of
from agent.runner.judge.drop import with_answers
from agent.runner.judge.verdict import scored, with_figures
from agent.runner.passes.profile import profile_of
from agent.runner.passes.steps import steps_of
from agent.runner.passes.sustained import sustained
from agent.runner.passes.telemetry import Telemetry
from agent.runner.passes.throughput import throughput
from agent.runner.turns.arm import Arm
from agent.runner.turns.ending import FailedError
from agent.wire.messages import Status
from runtime.errors import DataError


def later_steps(
    arm: Arm, sensors: Telemetry, base: Arm | None
) -> Iterator[Callable[[RunnerResult], RunnerResult]]:
    """Yield what was asked for behind the timed processes, and what heats the machine behind the other pass.

    Each step returns the result with more in it. It raises `CancelledError`, `FailedError`. `base`: the
    baseline, which has ended, of another arm.
    """
    plan = arm.job.plan

    def in_flight(result: RunnerResult) -> RunnerResult:
        if plan.throughput is None or result.status is not Status.DONE:
            return result
        counted = arm.children.run_pass(ThroughputReport, arm.environments[0])
        return with_figures(result, throughput=throughput(counted, plan.throughput))

    def step_by_step(result: RunnerResult) -> RunnerResult:
        if plan.steps is None or result.status is not Status.DONE:
            return result
        timed = arm.children.run_pass(StepsReport, arm.environments[0])
        return with_figures(result, steps=steps_of(timed, plan.steps))

    def one_by_one(result: RunnerResult) -> RunnerResult:
        if plan.profile is None or result.measurement is None:
            return result
        report = arm.children.run_pass(ProfileReport, arm.environments[0])
        profile = profile_of(report, plan.profile)
        advice = with_times(result.measurement.advice, profile)
        return with_figures(result, profile=profile, advice=advice)

    def without_pause(result: RunnerResult) -> RunnerResult:
        if result.status is not Status.DONE:
            return result
        report = arm.children.run_pass(SustainedReport, arm.environments[0])
        return with_figures(result, sustained=sustained(report, arm.attempt, sensors))

    labelled = partial(_labelled, arm, base)
    steps: list[tuple[object, Callable[[RunnerResult], RunnerResult]]] = [
        (plan.throughput, in_flight),
        (plan.steps, step_by_step),
        (plan.profile, one_by_one),
        (plan.sustained_s, without_pause),
        (plan.labelled, labelled),
    ]
    if arm.attempt.reported:
        yield from (step for asked, step in steps if asked is not None)
    elif plan.labelled is not None and plan.labelled.max_drop is not None:
        # What others may drop by is known by the answers of a baseline that is not reported, too.
        yield labelled


def _labelled(arm: Arm, base: Arm | None, result: RunnerResult) -> RunnerResult:
    score, data = arm.children.labelled(arm.environments[0]), arm.job.plan.labelled
    assert data is not None
    other = None if base is None else (base.name, base.folder)
    try:
        score = with_answers(score, arm.folder, other, data.max_drop)
    except DataError as error:
        raise FailedError(failure_of(error, arm.attempt)) from error
    return scored(result, score)
