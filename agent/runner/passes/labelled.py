"""Runs a model on labelled data in a process of its own, after everything is timed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from agent.attempt.files import AttemptFile, LabelledReport
from agent.runner.opening import input_rules, opener_of
from agent.runner.passes.process_frame import Tell, send_report
from agent.wire.measurement import LabelledScore
from runtime.measure.accuracy.intervals import judged_share, share_interval
from runtime.measure.labelled import count_right, load_labelled

BEST: Final = {"top1": 1, "top5": 5}
"""How many of the highest outputs a metric looks at: the right class must be among them."""

_PROGRESS_STEPS = 20
"""How often progress is told over all samples. Chosen: each time costs one small message between two samples,
and a step of 5 % is as fine as a watcher can use."""


def labelled_process(job_file: Path, folder: Path, descriptor: int) -> None:
    """Count the right answers in this process and send: the score or the failure."""
    send_report(LabelledReport, job_file, folder, descriptor, _scored)


def _scored(attempt: AttemptFile, _folder: Path, tell: Tell) -> LabelledReport:
    job, asked = attempt.job, attempt.job.plan.labelled
    assert asked is not None
    assert attempt.data_path is not None
    tell("labelled data")
    samples = load_labelled(Path(attempt.data_path))
    count = len(samples.labels)

    def told(done: int) -> None:
        if done % max(1, count // _PROGRESS_STEPS) == 0:
            tell(f"labelled data: {done} of {count}")

    rules = input_rules(job.inputs)
    right = count_right(opener_of(attempt, {}), attempt.model_path, samples, BEST[asked.metric], rules, told)
    interval = share_interval(right, count)
    score = LabelledScore(
        metric=asked.metric,
        samples=count,
        right=right,
        share=right / count,
        ci95=interval,
        at_least=asked.at_least,
        verdict=None if asked.at_least is None else judged_share(interval, asked.at_least),
    )
    return LabelledReport(score=score)
