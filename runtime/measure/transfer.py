"""Measures what a run copies between host and device, and what it takes on buffers that spare the copies.

As the device's times, these come from invokes behind the timed ones, and nothing of them is in the samples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from runtime.delegates.abilities import DeviceTimedModel, NotTold
from runtime.delegates.asynchrony import BoundSlot, NotStarted
from runtime.delegates.base import Array, Copies, CountsCopies
from runtime.errors import FarmRuntimeError
from runtime.measure.in_flight import slots_of
from runtime.measure.inputs import InputPool
from runtime.measure.loading import Opened
from runtime.measure.loop import Loop

MOST_RUNS: Final = 20
"""Invokes of the pass at most, beside its first. Chosen: more would hardly move their median, and each takes
a little longer than a timed one."""

SHARE: Final = 0.05
"""Share of the slices' time after which the pass begins no further invoke; it has at least one."""


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """Times in ns in the order of measurement; empty where `why_not` says why nothing tells them."""

    busy_ns: tuple[int, ...] = ()
    queue_ns: tuple[int, ...] = ()
    why_not: str = ""


def device_times(opened: Opened, loop_ns: int) -> DeviceTimes:
    """Invoke a model some more times and ask its device; `loop_ns` is how long the slices took.

    The first invoke makes what events need, and counts only if it is alone. Raises what invokes raise.
    """
    if opened.delegate is None:
        return DeviceTimes(why_not=f"{opened.kind} computes in the calling thread: it has no queue")
    if not isinstance(opened.model, DeviceTimedModel):
        return DeviceTimes(why_not=f"{opened.kind} does not tell when its device worked")
    busy: list[int] = []
    queue: list[int] = []
    until = time.perf_counter_ns() + SHARE * loop_ns
    while not busy or (len(busy) <= MOST_RUNS and time.perf_counter_ns() < until):
        told = opened.model.device_time()
        if isinstance(told, NotTold):
            return DeviceTimes(why_not=told.reason)
        busy.append(told.busy_ns)
        queue.append(told.queue_ns)
    first = 1 if len(busy) > 1 else 0
    return DeviceTimes(tuple(busy[first:]), tuple(queue[first:]))


_T = TypeVar("_T")

_TURNS: Final = 4
"""Stretches of each way at most, by turns: what drifts meanwhile meets both."""

_RUNS: Final = 6
"""Runs of a stretch at most. The first one puts other addresses into the device's table, and counts only if
it is alone."""

_LEAST_NS: Final = 50_000_000
"""What the pass may take where its share of the slices is less. Chosen: enough for every turn of a small
model, and nothing beside a start."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Times in ns in the order of measurement, and bytes, by name.

    `in`, `out`: the copies of a run; `copied`: that run, from inputs in host memory to outputs read; `bound`:
    a run on buffers that hold the inputs already and keep the outputs. `missing` says why there are no
    `copies` and why nothing is `bound`.
    """

    times_ns: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


def transfer(opened: Opened, loop: Loop, pool: InputPool, loop_ns: int) -> Transfer:
    """Invoke a model some more times, at least once; `loop_ns` is how long the slices took.

    Raises what invokes raise.
    """
    kind, delegate = opened.kind, opened.delegate
    if not isinstance(delegate, CountsCopies):
        why = "computes in the host's memory" if delegate is None else "does not tell what it copies"
        return Transfer(missing={"copies": f"{kind} {why}", "bound": f"{kind} runs on no buffers"})
    slot, missing = _slot(opened), dict[str, str]()
    copied, bound, copies = list[int](), list[int](), list[Copies]()
    share = max(int(SHARE * loop_ns), _LEAST_NS)
    until = time.perf_counter_ns() + share
    for turn in range(_TURNS):
        number = turn % loop.sets
        # The first stretch leaves half of the time to the first runs on buffers.
        ran = _stretch(partial(_copied, loop, delegate, number), until if turn else until - share // 2)
        copied += [ns for ns, _, _ in ran]
        copies += [told for _, _, told in ran if told is not None]
        if time.perf_counter_ns() >= until:
            if not bound and not isinstance(slot, str):
                slot = f"an invoke took the {share / 1e6:.3g} ms that further invokes may take"
            break
        if not isinstance(slot, str):
            found = _on_buffers(slot, pool.sets[number], ran[-1][1], until)
            if isinstance(found, str):
                bound, slot = [], found
            else:
                bound += found
        if time.perf_counter_ns() >= until:
            break
    if isinstance(slot, str):
        missing["bound"] = slot
    if not copies:
        missing["copies"] = f"no partition of {kind} ran"
    times = {
        "in": [one.in_ns for one in copies],
        "out": [one.out_ns for one in copies],
        "copied": copied,
        "bound": bound,
    }
    sizes = {"in": copies[-1].in_bytes, "out": copies[-1].out_bytes} if copies else {}
    return Transfer({name: tuple(found) for name, found in times.items() if found}, sizes, missing)


def _slot(opened: Opened) -> BoundSlot | str:
    """Return memory that runs work on, or why there is none."""
    slots = slots_of(opened, 1)
    if isinstance(slots, NotStarted):
        return slots.reason
    (slot,) = slots
    return slot if isinstance(slot, BoundSlot) else f"{opened.kind} runs on no buffers"


def _copied(loop: Loop, delegate: CountsCopies, number: int) -> tuple[int, tuple[Array, ...], Copies | None]:
    """Invoke once, once its inputs have arrived; return ns, the outputs and what was copied."""
    with delegate.awaiting_copies():
        ns, outputs = loop.once(number)
    return ns, outputs, delegate.copies


def _stretch(run: Callable[[], _T], until: int) -> list[_T]:
    """Run a few times; return what the runs gave, without the first where it is not alone."""
    given = [run()]
    while len(given) < _RUNS and time.perf_counter_ns() < until:
        given.append(run())
    return given[1:] or given


def _on_buffers(
    slot: BoundSlot, values: tuple[Array, ...], expected: tuple[Array, ...], until: int
) -> list[int] | str:
    """Return the times of runs on buffers, or why they do not count."""

    def timed() -> int:
        began = time.perf_counter_ns()
        slot.run_again()
        return time.perf_counter_ns() - began

    try:
        slot.start(values)
        slot.finish()
        taken = _stretch(timed, until)
        outputs = slot.finish()
    # Runs on buffers are no part of the measurement: without them one figure is missing, with the reason.
    except FarmRuntimeError as error:
        return str(error)
    # As bytes, because a NaN is not equal to itself.
    if any(one.tobytes() != other.tobytes() for one, other in zip(outputs, expected, strict=True)):
        return "runs on buffers give something else than runs that copy"
    return taken
