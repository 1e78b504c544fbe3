"""Mutated small files through load, allocate and invoke: only the runtime's own errors, in bounds.

python -m tests.fuzz.interpreter --cases 20000 --seed 1
"""

from __future__ import annotations

import contextlib
import warnings

import numpy as np

from runtime.errors import FarmRuntimeError
from runtime.interpreter import Interpreter
from runtime.ops import control_flow
from tests.fuzz.command import fuzz
from tests.fuzz.limited import Case, Limits
from tests.fuzz.mutations import mutated
from tests.fuzz.seeds import RUNNABLE_BYTES, Seed

LIMITS = Limits(address_bytes=2 << 30, seconds=30.0)


def runs(seeds: list[Seed]) -> Case:
    """A case: load one mutated file, allocate, feed it random values, invoke."""
    control_flow.MAX_LOOP_SECONDS = 2.0  # a mutated condition may never fail
    small = [seed for seed in seeds if seed.is_model and len(seed.data) <= RUNNABLE_BYTES]

    def case(number: int) -> None:
        with mutated(small, number) as (_, view), contextlib.suppress(FarmRuntimeError):
            run(bytes(view), number)

    return case


def run(data: bytes, number: int) -> None:
    """Raises `FarmRuntimeError` where the file cannot be run."""
    rng = np.random.default_rng(number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        interpreter = Interpreter(model_content=data)
        interpreter.allocate_tensors()
        for detail in interpreter.get_input_details():
            dtype = np.dtype(detail["dtype"])
            if dtype.kind in "biuf" and dtype.itemsize:
                values = rng.integers(0, 2 if dtype.kind == "b" else 100, detail["shape"]).astype(dtype)
                interpreter.set_tensor(detail["index"], values)
        interpreter.invoke()
        for detail in interpreter.get_output_details():
            interpreter.get_tensor(detail["index"])


if __name__ == "__main__":
    fuzz("interpreter", runs, LIMITS, default_cases=20_000)
