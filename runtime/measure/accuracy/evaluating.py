"""Runs a model on the samples of a task that have no answer yet."""

import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from runtime.errors import FarmRuntimeError
from runtime.judge.kinds import Stated
from runtime.measure.accuracy.answers import Answers
from runtime.measure.accuracy.data import Data, make_task
from runtime.measure.inputs import InputRule
from runtime.measure.loading import Opener
from runtime.measure.memory import peak_bytes, reset_peak
from runtime.model.graph import Model
from runtime.model.reader import load_model

_MOST_US = 2**32 - 1
"""The longest time that is told, in us: more than an hour. Four bytes each are held of every sample."""

Told = Callable[[int, int], None]
"""Is told the answers so far and the number of samples."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The costs of a pass: microseconds of each sample's preparation and of each invoke, and how much the
    peak of the process's memory grew from in front of the model's start on, in bytes.

    `samples` are those of the task, `head` is the task's.
    """

    head: Mapping[str, Any]
    samples: int
    preparing_us: Sequence[int]
    invoking_us: Sequence[int]
    memory_bytes: int


def evaluate(
    opener: Opener,
    model_path: Path,
    data: Data,
    answers_path: Path,
    identity: Mapping[str, Any],
    told: Told = lambda _done, _count: None,
    rules: Mapping[str, InputRule] | None = None,
    stated: Stated | None = None,
) -> Evaluated:
    """Answer every sample and keep the answers; those that the file has already are not given again.

    `identity`: what the answers depend on besides the task. Raises what `Opener.open` raises, `DataError`,
    `OSError`.
    """
    reset_peak()
    before = peak_bytes()
    model: Any = opener.open(str(model_path), rules).model
    inputs, outputs = model.get_input_details(), model.get_output_details()
    task = make_task(data, _graph(model_path), inputs, outputs, stated)
    answers = Answers(answers_path, {**task.head, **identity, "samples": task.count})
    preparing, invoking = array("I"), array("I")
    try:
        began = time.perf_counter_ns()
        for sample in task.samples(answers.count):
            for detail, value in zip(inputs, sample.inputs, strict=True):
                model.set_tensor(int(detail["index"]), value)
            fed = time.perf_counter_ns()
            model.invoke()
            ended = time.perf_counter_ns()
            preparing.append(min((fed - began) // 1000, _MOST_US))
            invoking.append(min((ended - fed) // 1000, _MOST_US))
            answers.add(task.answer(sample, [np.asarray(model.get_tensor(int(d["index"]))) for d in outputs]))
            told(answers.count, task.count)
            # Judging and writing the answer lie in front, and count to neither time.
            began = time.perf_counter_ns()
    finally:
        answers.close()
    memory = max(0, peak_bytes() - before)
    return Evaluated(task.head, task.count, preparing, invoking, memory)


def _graph(path: Path) -> Model | None:
    """Return the model's graph; None for one that only a delegate of another runtime reads."""
    try:
        return load_model(path)
    except (FarmRuntimeError, OSError):
        return None
