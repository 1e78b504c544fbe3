"""Runs the passes after the timed processes of an arm: the requested ones, and the labelled data."""

from collections.abc import Callable, Iterator
from functools import partial

from agent.attempt.files import PassReport, RunnerResult
from agent.runner.failures import failure_of
from agent.runner.judge.drop import with_answers
from agent.runner.judge.verdict import scored
from agent.runner.passes.process_frame import FiguresPass, Found, pass_of
from agent.runner.passes.telemetry import Telemetry
from agent.runner.turns.arm import Arm
from agent.runner.turns.comparison import FailedError
from agent.wire.messages import Status
from agent.wire.passes import PASSES, Pass
from runtime.errors import DataError


def later_steps(
    arm: Arm, sensors: Telemetry, base: Arm | None
) -> Iterator[Callable[[RunnerResult], RunnerResult]]:
    """Yield what was asked for behind the timed processes, and what heats the machine behind the other pass.

    Each step returns the result with more in it. It raises `CancelledError`, `FailedError`. `base`: the
    baseline, which has ended, of another arm.
    """
    plan = arm.job.plan
    if arm.attempt.reported:
        yield from (partial(_passed, one, arm, sensors) for one in PASSES if one.of(plan) is not None)
    # What others may drop by is known by the answers of a baseline that is not reported, too.
    if plan.labelled is not None and (arm.attempt.reported or plan.labelled.max_drop is not None):
        yield partial(_labelled, arm, base)


def _passed(one: Pass, arm: Arm, sensors: Telemetry, result: RunnerResult) -> RunnerResult:
    process: FiguresPass[PassReport] = pass_of(one.name)
    measurement = result.measurement
    if measurement is None or not (process.even_if_wrong or result.status is Status.DONE):
        return result
    report = arm.children.run_pass(process.report, arm.environments[0])
    found = Found(report, one.of(arm.job.plan), arm.attempt, measurement, sensors)
    added = measurement.model_copy(update=process.figures(found))
    return result.model_copy(update={"measurement": added})


def _labelled(arm: Arm, base: Arm | None, result: RunnerResult) -> RunnerResult:
    arm.score_labelled()
    score, data = arm.score, arm.job.plan.labelled
    assert score is not None
    assert data is not None
    other = None if base is None else (base.name, base.folder)
    try:
        score = with_answers(score, arm.folder, other, data.max_drop)
    except DataError as error:
        raise FailedError(failure_of(error, arm.attempt)) from error
    return scored(result, score)
