"""Checks that a delegate does the work for which it is timed, while it is timed.

Outputs are read inside the timed region, and judged. What is left: a delegate that remembers the answers to
inputs which it has seen is right and fast, and one that returns from `invoke` before it has computed leaves
its caller to wait elsewhere. Both are asked outside the timed slices, and neither answer changes a figure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

CACHED: Final = "cached"
"""The flag of a process in which new inputs take far longer than those that the timed invokes repeat."""

EARLY: Final = "early_return"
"""The flag of a process whose model is computed while its outputs are read, not while it is invoked."""

MOST_SLOWER: Final = 2.0
"""How many times as long an invoke with new inputs may take. Chosen: the time of some models depends on their
inputs, but rarely by so much; what answers from memory is faster by more."""

MOST_WAITING: Final = 0.5
"""Share of an invoke's time that may pass in waiting for its outputs, beyond what copying them takes."""

LEAST_WAIT_NS: Final = 100_000
"""Nanoseconds of waiting below which nothing is said. Chosen: page faults of a first copy take tens of
microseconds, and nobody gains by less."""

NEW_LEAST: Final = 2
"""New inputs that are tried however long they take. Chosen: one alone may have met a neighbour."""

NEW_SHARE: Final = 0.05
"""Share of the slices' time that further ones may take; the last one that is begun is finished."""

NEW_LEAST_NS: Final = 50_000_000
"""Nanoseconds that they may take all the same: so models of a few milliseconds are asked several times."""


@dataclass(frozen=True, slots=True)
class Waited:
    """One invoke in ns: all of it, the reading of its outputs, and a second reading of the same outputs."""

    whole_ns: int
    read_ns: int
    again_ns: int

    @property
    def wait_ns(self) -> int:
        """The time spent waiting for the outputs, beyond the time that copying them takes, in ns."""
        return max(0, self.read_ns - self.again_ns)


def early_return(invokes: Sequence[Waited]) -> str | None:
    """Return the flag of a model whose outputs are waited for (by the median of these invokes), or None."""
    if not invokes or median(one.wait_ns for one in invokes) < LEAST_WAIT_NS:
        return None
    share = median(one.wait_ns / one.whole_ns for one in invokes)
    if share < MOST_WAITING:
        return None
    waiting = f"{share:.0%} of the time passes in waiting for the outputs"
    return f"{EARLY}: invoke returns before the work is done; {waiting}"


def cached(loop_ns: Sequence[int], known_ns: Sequence[int], new_ns: Sequence[int]) -> str | None:
    """Return the flag of a process whose times hold for the repeated inputs alone, or None.

    `known_ns`: invokes with timed inputs, one after each with a new one, under the same conditions. Of
    few pairs every known one must be faster: on a busy machine times differ by more than the factor.
    """
    if len(new_ns) < NEW_LEAST or not known_ns or not loop_ns:
        return None
    ordered = sorted(known_ns)
    # Of more than a few, one slow known invoke excuses nothing.
    usual = max(median(loop_ns), ordered[-1] if len(ordered) <= NEW_LEAST else ordered[-2])
    if min(new_ns) <= MOST_SLOWER * usual:
        return None
    new_ms, usual_ms = min(new_ns) / 1e6, usual / 1e6
    return f"{CACHED}: new inputs take {new_ms:.4g} ms, those of the timed invokes {usual_ms:.4g} ms"
