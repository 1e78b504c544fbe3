"""Outputs of every input set, once and in order, on a model that was opened for it: how references are made.

A model may keep state between invokes: only a fresh one, fed in the same order, as the cold process does,
gives what the reference gave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from runtime.delegates.base import Array
from runtime.tools.agreement import OutputFacts
from runtime.tools.inputs import InputRule, make_pool
from runtime.tools.loading import Opener, output_facts


@dataclass(frozen=True, slots=True)
class OutputSets:
    """Output i of input set k at `sets[k][i]`, what is known about each output, and the inputs' sha256."""

    sets: tuple[tuple[Array, ...], ...]
    facts: tuple[OutputFacts, ...]
    pool_sha256: str


def run_sets(
    opener: Opener, path: str, model_sha256: str, rules: Mapping[str, InputRule] | None = None
) -> OutputSets:
    """Open the model and run the pool once, in order. Raises what `Opener.open` and `make_pool` raise."""
    model = opener.open(path, rules).model
    inputs = [int(d["index"]) for d in model.get_input_details()]
    indices = [int(d["index"]) for d in model.get_output_details()]
    pool = make_pool(model.get_input_details(), model_sha256, rules)
    found = []
    for values in pool.sets:
        for index, value in zip(inputs, values, strict=True):
            model.set_tensor(index, value)
        model.invoke()
        found.append(tuple(model.get_tensor(index) for index in indices))
    return OutputSets(tuple(found), output_facts(model), pool.sha256)


def save_outputs(path: Path, outputs: Sequence[Sequence[Array]]) -> None:
    """Store output `i` of set `k` as array `<k>_<i>`."""
    arrays: dict[str, Array] = {
        f"{k}_{i}": value for k, values in enumerate(outputs) for i, value in enumerate(values)
    }
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def load_outputs(path: Path, output_count: int) -> tuple[tuple[Array, ...], ...]:
    """Read what `save_outputs` wrote: `[k][i]`."""
    with np.load(path, allow_pickle=False) as stored:
        sets = len(stored.files) // max(1, output_count)
        return tuple(tuple(stored[f"{k}_{i}"] for i in range(output_count)) for k in range(sets))
