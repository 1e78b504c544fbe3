"""Times a sequence of steps of a model that keeps state: from a fresh state to the first output, then on.

A step is end to end, as a timed invoke is: from the inputs in host memory to all outputs read into it.
"""

from dataclasses import dataclass
from statistics import median
from typing import Final

from runtime.measure.loading import Subject
from runtime.measure.loop import Loop, collector_off
from runtime.measure.outputs import is_stateful

SEQUENCES: Final = 5
"""Sequences of a pass, each on a model that is opened anew, which every delegate can. Chosen: the median of
five first steps survives two that were disturbed."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """Medians over the sequences in ns, of the first step and of the others; 0 where `why_not` says why."""

    first_ns: int = 0
    step_ns: int = 0
    why_not: str = ""


def run_sequences(subject: Subject, steps: int) -> Sequence:
    """Open the model for each sequence and time its steps, which take the input sets in turn.

    Raises what `Subject.open`, `Subject.pool` and a run raise.
    """
    if not is_stateful(subject.path):
        return Sequence(why_not="the model keeps no state: each of its runs is a first step")
    firsts, others = [], []
    for _ in range(SEQUENCES):
        model = subject.open().model
        loop = Loop(model, subject.pool(model))
        with collector_off():
            times = [loop.once(step % loop.sets)[0] for step in range(steps)]
        firsts.append(times[0])
        others.append(median(times[1:]))
    return Sequence(round(median(firsts)), round(median(others)))
