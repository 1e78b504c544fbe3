"""Computes from the kernel's counters, never from measured times, what others took from a round of slices.

A thread of the measured process that is ready to run and has no CPU waits for another thread: one of its own
process, or one of others. It waited for others at most as long as its CPUs did not run its own process, and
at most as long as others ran at all.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Final

from agent.machine.counters import Window
from agent.machine.disturbance import MOST_FOREIGN, MOST_STEAL

MOST_TAKEN: Final = 0.05
"""Share of a slice that others may take before its round is repeated. Chosen: so few of its invokes do not
move a median; at 2 % every fourth round of a quiet machine was repeated for the kernel's own housekeeping."""


_WHOLE: Final = 0.99
"""Largest share that others are taken to have had: it makes the factor 100, at which no verdict stands."""


@dataclass(frozen=True, slots=True)
class SliceUse:
    """One slice of one arm: its length, the CPUs of the arm, and how its threads ran and waited for a CPU.

    `ran_s` and `waited_s` (of the thread that waited most) are None where the kernel does not tell them.
    `disturbed`: what a GPU's sensors say disturbed it.
    """

    wall_s: float
    cpus: int
    ran_s: float | None = None
    waited_s: float | None = None
    disturbed: str | None = None

    @property
    def most_taken_s(self) -> float | None:
        """The longest time that others can have taken from the slice; None where the kernel does not tell."""
        if self.ran_s is None or self.waited_s is None:
            return None
        return min(self.waited_s, max(0.0, self.cpus * self.wall_s - self.ran_s))


@dataclass(frozen=True, slots=True)
class Round:
    """One round: the counters of the machine around it, and the slice of each arm that took part."""

    window: Window
    slices: Mapping[str, SliceUse]

    @property
    def disturbed(self) -> str | None:
        """Return what disturbed the round so much that it is to be repeated; None for a clean one."""
        w = self.window
        if w.throttled_s:
            return f"a CPU quota stopped it for {w.throttled_s:.3f} s"
        if w.surely_stolen_s > MOST_STEAL * w.wall_s * w.cpus:
            return f"the hypervisor withheld {w.surely_stolen_s / w.wall_s:.2f} of {w.cpus} CPUs"
        if (w.surely_foreign_s or 0.0) > MOST_FOREIGN * w.wall_s * w.cpus:
            return f"other programs used {(w.surely_foreign_s or 0.0) / w.wall_s:.1f} of {w.cpus} CPUs"
        for name, use in self.slices.items():
            if use.disturbed is not None:
                return f"{name}: {use.disturbed}"
        shares = {name: taken([self], name) for name in self.slices}
        worst = max(shares, key=shares.__getitem__, default=None)
        if worst is None or shares[worst] <= MOST_TAKEN:
            return None
        return f"others kept a thread of {worst} from its CPU for {shares[worst]:.0%} of its slice"


def taken(rounds: Sequence[Round], name: str) -> float:
    """Return the share of an arm's slices in these rounds that others took."""
    slices = [one.slices[name] for one in rounds if name in one.slices]
    wall_s = sum(one.wall_s for one in slices)
    if wall_s <= 0.0:
        return 0.0
    window = whole(one.window for one in rounds if name in one.slices)
    # Stolen and throttled time is the whole machine's: the arm's slices have their share of it.
    lost = (window.surely_stolen_s / window.cpus + (window.throttled_s or 0.0)) / window.wall_s
    foreign_s = window.surely_foreign_s
    waits = [one.most_taken_s for one in slices]
    if None in waits:
        return lost + (foreign_s or 0.0) / (window.wall_s * window.cpus)
    waited_s = sum(wait for wait in waits if wait is not None)
    if foreign_s is None:
        return lost + waited_s / wall_s
    # Of one round all of it may have met this arm; of several its slices have their share.
    met_s = foreign_s if len(slices) == 1 else foreign_s * wall_s / window.wall_s
    return lost + min(waited_s, met_s) / wall_s


def allowance(rounds: Sequence[Round], name: str) -> float:
    """Return the allowance b of an arm: the logarithm of the factor by which others can have slowed it.

    Of a slice of which they took the share s the arm had 1 - s: it took up to 1 / (1 - s) as long.
    """
    return -math.log1p(-min(taken(rounds, name), _WHOLE))


def whole(windows: Iterable[Window]) -> Window:
    """Return the sum of several windows. Raises `TypeError` for none."""
    return reduce(add, windows)
