"""Measures by the device's events, in a pass of its own, how long an invoke computes and how late it begins.

It follows the last timed slice of a process, and nothing of it is in the samples: a queue whose events carry
times is slower than one whose events do not.
"""

import time
from dataclasses import dataclass
from typing import Final

from runtime.delegates.device_time import DeviceTimedModel, NotTold
from runtime.measure.loading import Opened

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
