"""Times a sequence of steps of a model that keeps state: from a fresh state to the first output, then on.

A step is end to end, as a timed invoke is: from the inputs in host memory to all outputs read into it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

from runtime.measure.inputs import InputRule, make_pool
from runtime.measure.loading import Opener
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


def run_sequences(
    opener: Opener, path: str, model_sha256: str, steps: int, rules: Mapping[str, InputRule] | None = None
) -> Sequence:
    """Open the model for each sequence and time its steps, which take the input sets in turn.

    Raises what `Opener.open`, `make_pool` and a run raise.
    """
    if not is_stateful(path):
        return Sequence(why_not="the model keeps no state: each of its runs is a first step")
    firsts, others = [], []
    for _ in range(SEQUENCES):
        model = opener.open(path, rules).model
        loop = Loop(model, make_pool(model.get_input_details(), model_sha256, rules))
        with collector_off():
            times = [loop.once(step % loop.sets)[0] for step in range(steps)]
        firsts.append(times[0])
        others.append(median(times[1:]))
    return Sequence(round(median(firsts)), round(median(others)))
