"""Runs a model on labelled data in a process of its own, after everything is timed."""

from pathlib import Path

from agent.attempt.files import ANSWERS_FILE, AttemptFile, LabelledReport
from agent.runner.opening import input_rules, opener_of
from agent.runner.passes.process_frame import PassProcess, Tell
from agent.wire.labelled import LabelledScore
from agent.wire.plan import LabelledData
from runtime.measure.accuracy.answers import read_answers
from runtime.measure.accuracy.data import Data
from runtime.measure.accuracy.evaluating import evaluate
from runtime.measure.accuracy.intervals import judged_share
from runtime.measure.accuracy.scores import scores

_PROGRESS_STEPS = 20
"""How often progress is told over all samples. Chosen: each time costs one small message between two samples,
and a step of 5 % is as fine as a watcher can use."""


def _scored(asked: LabelledData, attempt: AttemptFile, folder: Path, tell: Tell) -> LabelledReport:
    assert attempt.data_path is not None
    tell("labelled data")

    def told(done: int, count: int) -> None:
        if done % max(1, count // _PROGRESS_STEPS) == 0:
            tell(f"labelled data: {done} of {count}")

    data = Data(
        Path(attempt.data_path),
        metric=asked.metric,
        class_offset=asked.class_offset,
        mean=asked.mean,
        std=asked.std,
    )
    answers = folder / LabelledReport.name / ANSWERS_FILE
    found = evaluate(
        opener_of(attempt, {}),
        Path(attempt.model_path),
        data,
        answers,
        {},
        told,
        input_rules(attempt),
        {spec.name: (spec.kind, spec.role) for spec in attempt.job.plan.outputs},
    )
    chief = next(one for one in scores(found.head, read_answers(answers)) if one.metric == asked.metric)
    judged = None
    if asked.at_least is not None and chief.interval is not None:
        judged = judged_share(chief.interval, asked.at_least)
    score = LabelledScore(
        metric=asked.metric,
        samples=chief.samples,
        right=chief.right,
        share=chief.value,
        ci95=chief.interval,
        at_least=asked.at_least,
        verdict=judged,
    )
    return LabelledReport(score=score)


PASS = PassProcess(LabelledReport, _scored)
