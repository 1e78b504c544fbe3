"""Runs the passes after the timed processes of an arm: the requested ones, and the labelled data."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agent.attempt.files import ProfileReport, RunnerResult, SustainedReport, ThroughputReport
from agent.runner.advice import with_times
from agent.runner.judge.verdict import scored, with_figures
from agent.runner.passes.profile import profile_of
from agent.runner.passes.sustained import sustained
from agent.runner.passes.telemetry import Telemetry
from agent.runner.passes.throughput import throughput
from agent.runner.turns.arm import Arm
from agent.wire.messages import Status


def later_steps(arm: Arm, sensors: Telemetry) -> Iterator[Callable[[RunnerResult], RunnerResult]]:
    """Yield what was asked for behind the timed processes, and what heats the machine behind the other pass.

    Each step returns the result with more in it. It raises `CancelledError`, `FailedError`.
    """
    plan = arm.job.plan

    def in_flight(result: RunnerResult) -> RunnerResult:
        if plan.throughput is None or result.status is not Status.DONE:
            return result
        counted = arm.children.run_pass(ThroughputReport, arm.environments[0])
        return with_figures(result, throughput=throughput(counted, plan.throughput))

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

    if not arm.attempt.reported:
        return
    if plan.throughput is not None:
        yield in_flight
    if plan.profile is not None:
        yield one_by_one
    if plan.sustained_s is not None:
        yield without_pause
    if plan.labelled is not None:
        yield lambda result: scored(result, arm.children.labelled(arm.environments[0]))
