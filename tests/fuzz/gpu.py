"""Mutated small files on the GPU delegate: load, compile, invoke; only the runtime's own errors, in bounds.

python -m tests.fuzz.gpu --cases 2000 --seed 1
"""

from __future__ import annotations

import contextlib

from runtime.api.interpreter import load_delegate
from runtime.errors import FarmRuntimeError
from runtime.ops.state import control_flow
from tests.fuzz.command import fuzz
from tests.fuzz.interpreter import is_runnable, run
from tests.fuzz.limited import Case, Limits
from tests.fuzz.mutations import mutated
from tests.fuzz.seeds import Seed

LIMITS = Limits(address_bytes=8 << 30, seconds=60.0)
"""The driver's compiler and its threads are in this process; a model of many kernels compiles for seconds."""


def runs_on_gpu(seeds: list[Seed]) -> Case:
    """Return a case: run one mutated file on the OpenCL device of this machine."""
    control_flow.MAX_LOOP_SECONDS = 2.0  # a mutated condition may never fail
    delegate = load_delegate("gpu")
    small = [seed for seed in seeds if is_runnable(seed)]

    def case(number: int) -> None:
        with mutated(small, number) as (_, view), contextlib.suppress(FarmRuntimeError):
            run(bytes(view), number, [delegate])

    return case


if __name__ == "__main__":
    fuzz("gpu", runs_on_gpu, LIMITS, default_cases=2_000, suits=is_runnable)
