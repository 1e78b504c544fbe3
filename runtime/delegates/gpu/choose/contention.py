"""Tells whether other work takes the processors that a device computes on, so that nothing is timed then.

Other programs, a quota of a control group, and a host that this machine shares all show in one way: work that
always takes equally long pauses for milliseconds.
"""

import hashlib
from collections.abc import Iterable, Sequence
from threading import Thread
from time import perf_counter_ns
from typing import Final

from runtime.delegates.gpu.capabilities import Capabilities

MOST_PAUSED: Final = 0.1
"""Share of the time in which equal work may pause. One program more than there are processors takes a third
of the time of two threads; the housekeeping of a quiet machine takes about a hundredth. Larger keeps timings
that were disturbed, smaller calls quiet machines disturbed."""

_PAUSE_NS: Final = 500_000
"""Nanoseconds above which a delay counts as a pause: schedulers give a processor away for one to several
milliseconds, while caches and clocks make equal work differ by less. Smaller counts those as well."""

_ASKED_NS: Final = 16_000_000
"""Nanoseconds for which the processors are watched: several turns of a scheduler. Shorter misses a program
whose turn did not come, longer delays every start that times something."""

_MOST_WORKERS: Final = 16
"""Most threads that work at the same time. A program or two beside more of them delay a kernel little; more
threads only take longer to start."""

_PIECE: Final = bytes(128 << 10)
"""The piece of work: bytes to hash, during which a thread does not hold Python's lock. About 0.1 ms; longer
pieces would hide pauses."""


def paused_share(samples: Iterable[Sequence[int]]) -> float:
    """Return the share of all times in which work paused; each sequence has the nanoseconds of equal work."""
    paused, total = 0, 0
    for times in samples:
        # The lower quartile, because other load only ever adds time.
        typical = sorted(times)[len(times) // 4]
        # For work that takes longer than a pause, only a run of twice the usual time counts.
        paused += sum(t - typical for t in times if t - typical > max(typical, _PAUSE_NS))
        total += sum(times)
    return paused / total if total else 0.0


def disturbance(device: Capabilities) -> str:
    """Return what keeps a device from being timed now, and an empty text for a quiet one.

    A CPU device is asked by a few milliseconds of work on as many threads as it has. A GPU counts its own
    time, which work on the processors does not change.
    """
    if device.is_gpu:
        return ""
    samples: list[list[int]] = [[] for _ in range(min(device.compute_units, _MOST_WORKERS))]
    workers = [Thread(target=_work, args=(times,), name="gpu-contention") for times in samples]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return described(paused_share(samples))


def described(share: float) -> str:
    """Return the words for a share of time in which work paused; an empty text where it is small."""
    if share <= MOST_PAUSED:
        return ""
    return f"other work had the processors for {100 * share:.0f} % of the time"


def _work(times: list[int]) -> None:
    start = last = perf_counter_ns()
    while last - start < _ASKED_NS:
        hashlib.sha256(_PIECE)
        now = perf_counter_ns()
        times.append(now - last)
        last = now
