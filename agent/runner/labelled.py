"""The process that runs a model on labelled data, after everything is timed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from agent.attempt import runlog
from agent.attempt.files import LABELLED_FILE, AttemptFile, LabelledReport, write_atomically, write_progress
from agent.runner.measure import delegate_options, failure_of, input_rules
from agent.wire.measurement import LabelledScore
from runtime.errors import FarmRuntimeError
from runtime.tools.labelled import count_right, judged_share, load_labelled, share_interval
from runtime.tools.loading import Opener

BEST: Final = {"top1": 1, "top5": 5}
"""How many of the highest outputs a metric looks at: the right class must be among them."""

_PROGRESS_STEPS = 20
"""How often progress is written over all samples. Chosen: each time costs one small file between two samples,
and a step of 5 % is as fine as a watcher can use."""


def labelled_process(job_file: Path, folder: Path) -> None:
    """Count the right answers in this process and write `labelled.json`: the score or the failure."""
    attempt = AttemptFile.model_validate_json(job_file.read_bytes())
    group = attempt.device.exclusion_group
    runs_log = Path(attempt.runs_log)
    runlog.append(runs_log, "start", attempt.job.attempt_id, group, "labelled")
    try:
        report = LabelledReport(score=_score(attempt, folder))
    except (FarmRuntimeError, MemoryError) as error:
        report = LabelledReport(failure=failure_of(error, attempt))
    write_atomically(folder / LABELLED_FILE, report.model_dump_json().encode())
    runlog.append(runs_log, "end", attempt.job.attempt_id, group, "labelled")


def _score(attempt: AttemptFile, folder: Path) -> LabelledScore:
    job, asked = attempt.job, attempt.job.plan.labelled
    assert asked is not None
    assert attempt.data_path is not None
    write_progress(folder, "labelled data")
    samples = load_labelled(Path(attempt.data_path))
    count = len(samples.labels)

    def tell(done: int) -> None:
        if done % max(1, count // _PROGRESS_STEPS) == 0:
            write_progress(folder, f"labelled data: {done} of {count}")

    opener = Opener.prepare(job.delegate_kind, delegate_options(attempt, len(os.sched_getaffinity(0))))
    rules = input_rules(job.inputs)
    right = count_right(opener, attempt.model_path, samples, BEST[asked.metric], rules, tell)
    interval = share_interval(right, count)
    return LabelledScore(
        metric=asked.metric,
        samples=count,
        right=right,
        share=right / count,
        ci95=interval,
        at_least=asked.at_least,
        verdict=None if asked.at_least is None else judged_share(interval, asked.at_least),
    )
