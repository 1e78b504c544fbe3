"""Runs of a model that are started and not yet ended, and runs alone, by which they are checked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.delegates.asynchrony import AsynchronousModel, NotStarted, RunSlot
from runtime.delegates.base import Array, LoadedModel
from runtime.judge.agreement import Expected, judge
from runtime.judge.rules import Rule, arithmetic_of, rule_for
from runtime.measure.inputs import InputPool
from runtime.measure.loading import Opened, output_facts
from runtime.measure.loop import Loop
from runtime.model.reader import read_model


def keep_in_flight(
    slots: Sequence[RunSlot],
    inputs: Callable[[int], tuple[Array, ...]],
    goes_on: Callable[[int], bool],
    ended: Callable[[int, tuple[Array, ...]], None],
) -> int:
    """Run until `goes_on`, told how many were started, is false; return how many, all of which have ended.

    Run i takes `inputs(i)`, in slot i mod their number once the run before it there has ended. `ended` gets a
    run's number and outputs, in the order of the starts.
    """
    started, count = 0, len(slots)
    while goes_on(started):
        slot = slots[started % count]
        if started >= count:
            ended(started - count, slot.finish())
        slot.start(inputs(started))
        started += 1
    # The last run of each slot; fewer, where the runs ended before every slot had one.
    for number in range(max(0, started - count), started):
        ended(number, slots[number % count].finish())
    return started


class Blocking:
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


def slots_of(opened: Opened, count: int) -> Sequence[RunSlot] | NotStarted:
    """Return memory for so many runs in flight, or why the delegate cannot start one."""
    if opened.delegate is None or not isinstance(opened.model, AsynchronousModel):
        return NotStarted(f"{opened.kind} has no asynchronous runs")
    slots = opened.model.run_slots(count)
    return NotStarted(f"{opened.kind}: {slots.reason}") if isinstance(slots, NotStarted) else slots


@dataclass(frozen=True, slots=True)
class Alone:
    """The outputs of runs alone for each input set, and the rule by which others must agree: bit by bit, or
    by tolerances if two of them differ already.
    """

    expected: Expected
    rule: Rule

    @classmethod
    def of(cls, opened: Opened, path: str, pool: InputPool) -> "Alone":
        """Run every input set twice, alone."""
        loop = Loop(opened.model, pool)
        # Pass by pass: each repetition follows a run of another set, so
        # that a stale output shows as a difference.
        first, again = ([loop.once(k)[1] for k in range(loop.sets)] for _ in range(2))
        expected, exact = Expected(first, output_facts(opened.model)), Rule("bit_equal", 0.0, "bit-equal")
        if judge(expected, again, exact).verdict != "fail":
            return cls(expected, exact)
        # Read only here: where runs are bit-equal, the rule does not depend on the model.
        arithmetic = arithmetic_of(read_model(Path(path).read_bytes()))
        precision = opened.describe().get("precision", "fp32")
        return cls(
            expected, rule_for(arithmetic, integer_path=False, precision=precision, exact_reference=False)
        )

    def difference(self, k: int, outputs: tuple[Array, ...]) -> str | None:
        """Describe how outputs for input set `k` differ from those of a run alone; None if they agree."""
        found = judge(self.expected, [outputs], self.rule, sets=[k])
        return found.note if found.verdict == "fail" else None
