"""Mutated small files through load, allocate and invoke: only the runtime's own errors, in bounds.

python -m tests.fuzz.interpreter --cases 20000 --seed 1
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from runtime.api.interpreter import Interpreter
from runtime.errors import FarmRuntimeError
from runtime.ops.state import control_flow
from tests.fuzz.command import fuzz
from tests.fuzz.limited import Case, Limits
from tests.fuzz.mutations import mutated
from tests.fuzz.seeds import RUNNABLE_BYTES, Seed

FEW = 4099
"""Values that are repeated to fill an input."""

LARGE = 1 << 20

LIMITS = Limits(address_bytes=2 << 30, seconds=30.0)


def is_runnable(seed: Seed) -> bool:
    """Return True for a model that is small enough to run thousands of times."""
    return seed.is_model and len(seed.data) <= RUNNABLE_BYTES


def runs(seeds: list[Seed]) -> Case:
    """Return a case: load one mutated file, allocate, feed it random values, invoke."""
    control_flow.MAX_LOOP_SECONDS = 2.0  # a mutated condition may never fail
    small = [seed for seed in seeds if is_runnable(seed)]

    def case(number: int) -> None:
        with mutated(small, number) as (_, view), contextlib.suppress(FarmRuntimeError):
            run(bytes(view), number)

    return case


def run(data: bytes, number: int, delegates: Sequence[Any] = ()) -> None:
    """Run the file. Raises `FarmRuntimeError` if it cannot be run."""
    rng = np.random.default_rng(number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        interpreter = Interpreter(model_content=data, experimental_delegates=delegates)
        interpreter.allocate_tensors()
        for detail in interpreter.get_input_details():
            dtype = np.dtype(detail["dtype"])
            if dtype.kind in "biuf" and dtype.itemsize:
                few = rng.integers(0, 2 if dtype.kind == "b" else 100, FEW).astype(dtype)
                _feed(interpreter, detail, few)
        interpreter.invoke()
        for detail in interpreter.get_output_details():
            interpreter.get_tensor(detail["index"])


def _feed(interpreter: Interpreter, detail: dict[str, Any], few: np.ndarray) -> None:
    """Fill an input with few values, repeated; a large one in place, so that memory is the runtime's alone.

    A mutation may make a constant an input: that cannot be set, as LiteRT's ValueError says.
    """
    try:
        if math.prod(detail["shape"].tolist()) < LARGE:
            interpreter.set_tensor(detail["index"], np.resize(few, detail["shape"]))
            return
        flat = interpreter.tensor(detail["index"])().reshape(-1)
    except ValueError as error:
        if "Tensor" not in str(error):
            raise
        return
    whole = flat.size // FEW * FEW
    np.copyto(flat[:whole].reshape(-1, FEW), few)
    flat[whole:] = few[: flat.size - whole]


if __name__ == "__main__":
    fuzz("interpreter", runs, LIMITS, default_cases=20_000, suits=is_runnable)
