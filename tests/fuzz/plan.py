"""Mutated small files through `farm model plan`: a plan for an assumed device, or the runtime's own errors.

python -m tests.fuzz.plan --cases 20000 --seed 1
"""

from __future__ import annotations

import contextlib

from runtime.errors import FarmRuntimeError
from runtime.model.reader import read_model
from runtime.tools.model_plan import document, lines, model_plan, planner_of
from tests.fuzz.command import fuzz
from tests.fuzz.interpreter import is_runnable
from tests.fuzz.limited import Case, Limits
from tests.fuzz.mutations import mutated
from tests.fuzz.seeds import Seed

LIMITS = Limits(address_bytes=2 << 30, seconds=10.0)


def plans(seeds: list[Seed]) -> Case:
    """Return a case: plan one mutated file for a processor, and print the plan in two forms."""
    planner = planner_of("gpu", {}, "cpu", is_tuned=False)
    small = [seed for seed in seeds if is_runnable(seed)]

    def case(number: int) -> None:
        with mutated(small, number) as (_, view), contextlib.suppress(FarmRuntimeError):
            found = model_plan(read_model(bytes(view)), planner)
            document(found, "m.tflite")
            list(lines(found, "m.tflite"))

    return case


if __name__ == "__main__":
    fuzz("plan", plans, LIMITS, default_cases=20_000, suits=is_runnable)
