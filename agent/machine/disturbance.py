"""Judges a measurement by the counters around it: the signals there were, and what they showed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agent.machine.counters import Window

MOST_FOREIGN: Final = 0.05
"""Share of the CPUs' time that other programs may use. Chosen: a quiet machine's housekeeping is a hundredth;
above a twentieth caches, turbo and memory bandwidth are shared noticeably. A share grows with the CPUs."""

MOST_STEAL: Final = 0.01
"""Share of the CPUs' time that a hypervisor may give to other machines."""

MOST_WAITING: Final = 0.05
"""Share of the time in which some task of the host may wait for a CPU, where other programs ran at all:
threads of the measured process alone may wait for each other."""

LEAST_FOREIGN: Final = 0.01
"""Share of the CPUs' time from which on other programs ran at all."""

LONGEST_SLEEP_S: Final = 0.01
"""Seconds by which the two clocks may differ without a suspended machine between their readings."""

SHORTEST_S: Final = 0.2
"""Seconds below which a window is too short for counters of hundredths of a second."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """One thing that disturbed a measurement, for people; `invalidates`: its figures mean nothing."""

    text: str
    invalidates: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """The disturbances, the signals that were read, and those that were not, each with the reason."""

    found: tuple[Disturbance, ...] = ()
    seen: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()


def disturbances(window: Window) -> Evidence:
    """Judge a window."""
    found: list[Disturbance] = []
    seen: list[str] = []
    unseen: list[str] = []
    for name, reading, why, judge in _SIGNALS:
        if reading(window) is None:
            unseen.append(f"{name}: {why}")
        elif name in _COARSE and window.wall_s < SHORTEST_S:
            unseen.append(f"{name}: its rounds took {1000 * window.wall_s:.0f} ms in all, too short to tell")
        else:
            seen.append(name)
            what = judge(window)
            if what is not None:
                found.append(what)
    return Evidence(tuple(found), tuple(seen), tuple(unseen))


def _foreign(w: Window) -> Disturbance | None:
    # Judged by what no rounding explains, told as it was counted. `_COARSE` keeps windows of no length out.
    if (w.surely_foreign_s or 0.0) <= MOST_FOREIGN * w.wall_s * w.cpus:
        return None
    return Disturbance(f"other programs used {(w.foreign_s or 0.0) / w.wall_s:.1f} of {w.cpus} CPUs")


def _steal(w: Window) -> Disturbance | None:
    stolen = w.steal_s or 0.0
    if w.surely_stolen_s <= MOST_STEAL * w.wall_s * w.cpus:
        return None
    return Disturbance(f"the hypervisor withheld {stolen / w.wall_s:.2f} of {w.cpus} CPUs")


def _throttled(w: Window) -> Disturbance | None:
    stopped = w.throttled_s or 0.0
    return Disturbance(f"a CPU quota stopped it for {stopped:.3f} s") if stopped > 0.0 else None


def _waiting(w: Window) -> Disturbance | None:
    waited = w.waiting_s or 0.0
    foreign = w.surely_foreign_s or 0.0
    if waited <= MOST_WAITING * w.wall_s or foreign <= LEAST_FOREIGN * w.wall_s * w.cpus:
        return None
    return Disturbance(f"tasks waited for a CPU in {waited / w.wall_s:.0%} of the time")


def _swapped(w: Window) -> Disturbance | None:
    return Disturbance(f"{w.swapped_in} pages were swapped in", invalidates=True) if w.swapped_in else None


def _asleep(w: Window) -> Disturbance | None:
    if w.asleep_s <= LONGEST_SLEEP_S:
        return None
    return Disturbance(f"the machine was suspended for {w.asleep_s:.1f} s", invalidates=True)


_NO_STAT: Final = "the kernel does not count the use of these CPUs"

_SIGNALS: Final[
    tuple[tuple[str, Callable[[Window], float | None], str, Callable[[Window], Disturbance | None]], ...]
] = (
    ("foreign CPU time", lambda w: w.foreign_s, _NO_STAT, _foreign),
    ("steal time", lambda w: w.steal_s, _NO_STAT, _steal),
    ("CPU throttling", lambda w: w.throttled_s, "no control group counts it", _throttled),
    ("CPU pressure", lambda w: w.waiting_s, "the kernel has no /proc/pressure", _waiting),
    ("swap", lambda w: w.swapped_in, "the kernel does not count it", _swapped),
    ("suspend", lambda w: w.asleep_s, "", _asleep),
)
"""Name, reading, why there may be none, judgement."""

_COARSE: Final = frozenset({"foreign CPU time", "steal time"})
"""Signals that are counted in hundredths of a second."""
