"""Computes the outputs of every input set, once and in order, on a freshly opened model: makes references.

A model may keep state between invokes: only a fresh one, fed in the same order, as the cold process does,
gives what the reference gave. Such a model is asked again after `LATER` steps: what a state loses or gathers
slowly, the first few steps do not show.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import numpy as np

from runtime.delegates.base import Array
from runtime.errors import FarmRuntimeError
from runtime.judge.agreement import OutputFacts
from runtime.judge.rules import keeps_state
from runtime.measure.in_flight import Blocking
from runtime.measure.loading import Subject, output_facts
from runtime.model.reader import load_model

LATER: Final = 64
"""Invokes behind which a model that keeps state is judged again. Chosen: gates of recurrent networks forget
within tens of steps. Rounded up to a multiple of the input sets, so that they come in the same order."""

Inputs = tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class OutputSets:
    """Output i of input set k at `sets[k][i]`, what is known about each output, and the inputs' sha256.

    A model that keeps state has as many sets once more: the same inputs after `LATER` steps.
    """

    sets: tuple[tuple[Array, ...], ...]
    facts: tuple[OutputFacts, ...]
    pool_sha256: str


def run_sets(subject: Subject, change: Callable[[Inputs], Inputs] = lambda values: values) -> OutputSets:
    """Open the model and run the pool once, in order. Raises what `Subject.open` and `Subject.pool` raise.

    `change`: what is done to each set of inputs before it is fed.
    """
    model = subject.open().model
    slot = Blocking(model)
    pool = subject.pool(model)
    changed = [change(values) for values in pool.sets]
    found = []
    for step, is_judged in steps(len(changed), is_stateful=is_stateful(subject.path)):
        slot.start(changed[step % len(changed)])
        if is_judged:
            found.append(slot.finish())
    return OutputSets(tuple(found), output_facts(model), pool.sha256)


def is_stateful(path: str) -> bool:
    """Return whether a model keeps state. One that LiteRT alone can read counts as none."""
    try:
        return keeps_state(load_model(path))
    except (FarmRuntimeError, OSError):
        return False


def steps(sets: int, *, is_stateful: bool) -> Iterator[tuple[int, bool]]:
    """Yield the steps of a freshly opened model, and whether the outputs of each are judged."""
    later = -(-LATER // sets) * sets
    count = later + sets if is_stateful else sets
    return ((step, step < sets or step >= later) for step in range(count))


def save_outputs(path: Path, outputs: Sequence[Sequence[Array]]) -> None:
    """Store output `i` of set `k` as array `<k>_<i>`."""
    arrays: dict[str, Array] = {
        f"{k}_{i}": value for k, values in enumerate(outputs) for i, value in enumerate(values)
    }
    # An open file: to a name of another suffix `savez` would append `.npz`.
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def load_outputs(source: Path | IO[bytes], output_count: int) -> tuple[tuple[Array, ...], ...]:
    """Read what `save_outputs` wrote: `[k][i]`."""
    with np.load(source, allow_pickle=False) as stored:
        sets = len(stored.files) // max(1, output_count)
        return tuple(tuple(stored[f"{k}_{i}"] for i in range(output_count)) for k in range(sets))
