"""Counts the runs that a model finishes in a second while so many of them are in flight.

A run is end to end, as a timed invoke is: from the inputs in host memory to all outputs read into it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runtime.delegates.asynchrony import AsynchronousModel, NotStarted, RunSlot
from runtime.delegates.base import Array, LoadedModel
from runtime.judge.agreement import Expected, judge
from runtime.judge.arithmetic import arithmetic_of
from runtime.judge.rules import Rule, rule_for
from runtime.measure.inputs import InputPool, InputRule, make_pool
from runtime.measure.loading import Opened, Opener, output_facts
from runtime.measure.loop import Loop, collector_off
from runtime.model.reader import read_model

_ALONE: Final = "in_flight: 1 measures runs one after another"


@dataclass(frozen=True, slots=True)
class Throughput:
    """`runs` were started and ended within `wall_ns`; both are 0 where `why_not` says why."""

    runs: int = 0
    wall_ns: int = 0
    why_not: str = ""


def throughput(
    opener: Opener,
    path: str,
    model_sha256: str,
    in_flight: int,
    seconds: float,
    rules: Mapping[str, InputRule] | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Throughput:
    """Open a model and keep so many runs in flight for so many seconds, after a short warm-up.

    `clock` counts ns. A run that gives something else than a run alone leaves no throughput. Raises what
    `Opener.open`, `make_pool` and a run raise.
    """
    opened = opener.open(path, rules)
    slots = _slots(opened, in_flight)
    if isinstance(slots, NotStarted):
        return Throughput(why_not=slots.reason)
    pool = make_pool(opened.model.get_input_details(), model_sha256, rules)
    # Runs one after another are runs alone; a model that keeps state would not repeat its outputs either.
    alone = None if in_flight == 1 else _Alone.of(opened, path, pool)
    wrong: list[str] = []

    def check(number: int, outputs: tuple[Array, ...]) -> None:
        found = None if alone is None or wrong else alone.difference(number % len(pool.sets), outputs)
        if found is not None:
            wrong.append(f"with {in_flight} runs in flight, unlike a run alone: {found}")

    warm_up = 2 * max(in_flight, len(pool.sets))
    keep_in_flight(slots, pool.sets, lambda started: started < warm_up, check)
    last: dict[int, tuple[int, tuple[Array, ...]]] = {}

    def keep(number: int, outputs: tuple[Array, ...]) -> None:
        # Judged behind the timed runs, and only one of each slot is kept: all of them would fill the memory.
        last[number % in_flight] = number, outputs

    with collector_off():
        began = clock()
        until = began + int(1e9 * seconds)
        runs = keep_in_flight(slots, pool.sets, lambda started: started < in_flight or clock() < until, keep)
        wall_ns = clock() - began
    for number, outputs in last.values():
        check(number, outputs)
    return Throughput(why_not=wrong[0]) if wrong else Throughput(runs, wall_ns)


def keep_in_flight(
    slots: Sequence[RunSlot],
    sets: Sequence[tuple[Array, ...]],
    goes_on: Callable[[int], bool],
    ended: Callable[[int, tuple[Array, ...]], None],
) -> int:
    """Run until `goes_on`, told how many were started, is false; return how many, all of which have ended.

    Run i takes input set i mod their number, in slot i mod their number once the run before it there has
    ended. `ended` gets a run's number and outputs, in the order of the starts.
    """
    started, count = 0, len(slots)
    while goes_on(started):
        slot = slots[started % count]
        if started >= count:
            ended(started - count, slot.finish())
        slot.start(sets[started % len(sets)])
        started += 1
    for number in range(max(0, started - count), started):
        ended(number, slots[number % count].finish())
    return started


class _Blocking:
    """Runs one after another, by which every model can be run."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._inputs = [int(d["index"]) for d in model.get_input_details()]
        self._outputs = [int(d["index"]) for d in model.get_output_details()]

    def start(self, values: Sequence[Array]) -> None:
        """Run to completion."""
        for index, value in zip(self._inputs, values, strict=True):
            self._model.set_tensor(index, value)
        self._model.invoke()

    def finish(self) -> tuple[Array, ...]:
        """Read the outputs."""
        return tuple([self._model.get_tensor(index) for index in self._outputs])


def _slots(opened: Opened, in_flight: int) -> Sequence[RunSlot] | NotStarted:
    if in_flight == 1:
        return [_Blocking(opened.model)]
    if opened.delegate is None or not isinstance(opened.model, AsynchronousModel):
        return NotStarted(f"{opened.kind} has no asynchronous runs; {_ALONE}")
    slots = opened.model.run_slots(in_flight)
    return NotStarted(f"{opened.kind}: {slots.reason}; {_ALONE}") if isinstance(slots, NotStarted) else slots


@dataclass(frozen=True, slots=True)
class _Alone:
    """The outputs of runs alone for each input set, and the rule by which others must agree: bit by bit, or
    by tolerances if two of them differ already.
    """

    expected: Expected
    rule: Rule

    @classmethod
    def of(cls, opened: Opened, path: str, pool: InputPool) -> _Alone:
        """Run every input set twice, alone."""
        loop = Loop(opened.model, pool)
        first, again = ([loop.once(k)[1] for k in range(loop.sets)] for _ in range(2))
        expected, exact = Expected(first, output_facts(opened.model)), Rule("bit_equal", 0.0, "bit-equal")
        if judge(expected, again, exact).verdict != "fail":
            return cls(expected, exact)
        arithmetic = arithmetic_of(read_model(Path(path).read_bytes()))
        precision = opened.describe().get("precision", "fp32")
        return cls(
            expected, rule_for(arithmetic, integer_path=False, precision=precision, exact_reference=False)
        )

    def difference(self, k: int, outputs: tuple[Array, ...]) -> str | None:
        """Describe how outputs for input set `k` differ from those of a run alone; None if they agree."""
        found = judge(self.expected, [outputs], self.rule, sets=[k])
        return found.note if found.verdict == "fail" else None
