"""Times several runners of one model in one process, round by round in random order.

Only ratios of two contenders of the same round are meaningful: the machine's speed drifts and is shared.
A round during which other processes took more than a tenth of a core is thrown away and counted.
"""

from __future__ import annotations

import gc
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

FOREIGN_CPU_LIMIT = 0.1
MIN_ROUNDS = 3
TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Rounds:
    """Median seconds of one call, per contender and accepted round; `rejected` rounds were disturbed."""

    seconds: Mapping[str, tuple[float, ...]]
    rejected: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median of per-round ratios with its 95 % order-statistic interval, over n rounds."""

    median: float
    low: float
    high: float
    rounds: int


def measure(
    contenders: Mapping[str, Callable[[], object]],
    rounds: int,
    slice_s: float,
    seed: int = 0,
    foreign_limit: float = FOREIGN_CPU_LIMIT,
) -> Rounds:
    """Run every contender once per round for about `slice_s` seconds, in an order drawn at random each round.

    Raises RuntimeError where other processes took more than `foreign_limit` of a core in most rounds.
    """
    rng = random.Random(seed)  # noqa: S311  # an order of arms, not a secret
    calls = {name: _calls_for(call, slice_s) for name, call in contenders.items()}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    rejected = 0
    gc.disable()
    while len(next(iter(seconds.values()))) < rounds and rejected < 3 * rounds:
        order = list(contenders)
        rng.shuffle(order)
        before = busy_seconds()
        taken = {name: slice_of(contenders[name], calls[name]) for name in order}
        if _foreign_share(before, busy_seconds()) > foreign_limit:
            rejected += 1
            continue
        for name, value in taken.items():
            seconds[name].append(value)
    gc.enable()
    if len(next(iter(seconds.values()))) < MIN_ROUNDS:
        raise RuntimeError(f"other processes disturbed {rejected} rounds; repeat on a machine that is quiet")
    return Rounds({name: tuple(values) for name, values in seconds.items()}, rejected)


def ratio(numerator: tuple[float, ...], denominator: tuple[float, ...]) -> Ratio:
    """Per-round numerator / denominator; interval by the binomial ranks of the median."""
    values = sorted(a / b for a, b in zip(numerator, denominator, strict=True))
    n = len(values)
    half = 1.96 * math.sqrt(n) / 2
    low, high = max(0, math.floor(n / 2 - half)), min(n - 1, math.ceil(n / 2 + half))
    return Ratio(statistics.median(values), values[low], values[high], n)


def _calls_for(call: Callable[[], object], slice_s: float) -> int:
    """Calls in a slice; one that alone takes longer is not called again to find that out."""
    for _ in range(4):
        start = time.perf_counter()
        call()
        taken = time.perf_counter() - start
        if taken > slice_s:
            return 1
    return max(1, round(slice_s / max(taken, 1e-6)))


def slice_of(call: Callable[[], object], count: int) -> float:
    """Median seconds of `count` calls, after one that is not timed where there are several."""
    if count > 1:
        call()
    times = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def busy_seconds() -> tuple[float, float, float]:
    """(wall, all CPUs' busy seconds, CPU seconds of this process and its ended children)."""
    fields = [int(v) for v in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    own = os.times()
    busy = (user + nice + system + irq + softirq + steal) * TICK_SECONDS
    return time.perf_counter(), busy, sum(own[:4])


def _foreign_share(before: tuple[float, float, float], after: tuple[float, float, float]) -> float:
    wall, busy, own = (b - a for a, b in zip(before, after, strict=True))
    return max(0.0, busy - own) / wall
