"""Measures the errors of statements about samples: bounds of tails, intervals over tunings, the drift flag.

Part of `python -m benchmarks.statistics`: simulated cells whose truth is known.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import product
from statistics import NormalDist, fmean
from typing import Final

import numpy as np

from benchmarks.noisy_blocks import ROUNDS, Floats
from benchmarks.output import table
from runtime.measure.samples.drift import drift
from runtime.measure.samples.summary import TAILS, ProcessTimes, summarise
from runtime.measure.samples.tails import mixture_quantile

CALL_NS: Final = 1e6
"""The median of a call in ns; every figure below is relative to it."""

TUNING_SD, PROCESS_SD, CALL_SD = 0.015, 0.01, 0.05
"""Standard deviations, as shares, by which tunings, the processes of one and the calls of one differ."""

_SLICE: Final = 100
"""Calls of a slice: those of a model of 1 ms."""

_TAIL_TRIALS: Final = 400
"""Cells of the tails, each of which has thousands of samples."""

TAIL_SD: Final = 0.1
"""Standard deviation of the logarithm of a call's time where tails are looked at."""

_NORMAL: Final = NormalDist()

_TAILS_TEXT: Final = f"""\
## Tails

Processes differ by {PROCESS_SD:.0%}, calls by {TAIL_SD:.0%}, of which a share of the variance is common
to those of a slice; {ROUNDS} slices of {_SLICE} calls. Too low: below the percentile of the calls of these
processes; the mark of the bounds is 1 %, and {_TAIL_TRIALS} cells tell it to about half a per cent. Where
half of the variance is common, 7 slices of a process are too few to see how few calls are independent.
"""

_TUNINGS_TEXT: Final = f"""\
## Tunings

Tunings differ by {TUNING_SD:.1%}, processes by {PROCESS_SD:.0%}, calls by {CALL_SD:.0%}; with one tuning
the interval is over processes and holds for this tuning alone.
"""


def tails(rng: np.random.Generator, processes: int, resemblance: float, trials: int) -> tuple[float, ...]:
    """Shares of cells whose p90 and p99 are below those of the calls of their processes: the bounds, and the
    samples at their ranks; and of intervals of p99 that hold that of all processes.

    Of the variance of calls the share `resemblance` is common to those of a slice.
    """
    low, plain, held = np.zeros(2), np.zeros(2), 0
    # Over all processes the logarithms of calls are normal, with both variances.
    everywhere = math.exp(_NORMAL.inv_cdf(0.99) * math.hypot(PROCESS_SD, TAIL_SD))
    for _ in range(trials):
        level = rng.normal(0.0, PROCESS_SD, (processes, 1, 1))
        calls = rng.normal(0.0, np.sqrt(1 - resemblance), (processes, ROUNDS, _SLICE))
        calls += rng.normal(0.0, np.sqrt(resemblance), (processes, ROUNDS, 1))
        samples = nanoseconds(np.exp(level + TAIL_SD * calls).reshape(processes, -1))
        found = summarise([ProcessTimes("warm", 1, 1, one, slices=[_SLICE] * ROUNDS) for one in samples])
        true = np.array([CALL_NS * _true_tail(level.ravel().tolist(), q) for q in (0.9, 0.99)])
        bounds = [1e6 * (np.inf if value is None else value) for value in (found.p90, found.p99)]
        low += bounds < true
        plain += [mixture_quantile(samples, TAILS[name]) for name in ("p90", "p99")] < true
        # Without an interval nothing is claimed that could be wrong.
        held += found.p99_ci95 is None or found.p99_ci95[0] <= everywhere <= found.p99_ci95[1]
    return (*(low / trials), *(plain / trials), held / trials)


def _true_tail(levels: Sequence[float], q: float) -> float:
    """Return the quantile of the calls of processes at these levels, by bisection."""
    low, high = min(levels) - 1.0, max(levels) + 1.0
    # The interval is some 2 wide: 2**-40 of it is nothing beside samples in whole nanoseconds.
    for _ in range(40):
        middle = (low + high) / 2.0
        below = fmean(_NORMAL.cdf((middle - level) / TAIL_SD) for level in levels)
        low, high = (middle, high) if below < q else (low, middle)
    return math.exp(high)


def over_tunings(rng: np.random.Generator, processes: int, tunings: int, trials: int) -> float:
    """Share of cells whose `ci95` holds the true p50, where tunings vary too; processes take them in turn."""
    held = 0
    turns = np.arange(processes) % tunings
    for _ in range(trials):
        level = rng.normal(0, TUNING_SD, tunings)[turns] + rng.normal(0, PROCESS_SD, processes)
        times = nanoseconds(np.exp(level[:, None] + rng.normal(0, CALL_SD, (processes, 130))))
        found = summarise([ProcessTimes("warm", 1, 1, *one) for one in zip(times, turns, strict=True)])
        assert found.ci95 is not None
        held += found.ci95[0] <= 1.0 <= found.ci95[1]
    return held / trials


def alarms(
    rng: np.random.Generator, samples: int, noise: float, resemblance: float, change: float, trials: int
) -> float:
    """Share of loops that are flagged for drift: AR(1) noise of this sd, changing linearly by `change`."""
    flagged = 0
    for _ in range(trials):
        path = noise * _autoregressive(rng, samples, resemblance)
        loop = np.exp(path + np.linspace(0, np.log1p(change), samples))
        found = drift((CALL_NS * loop).astype(np.int64))
        flagged += found is not None and found.is_alarming
    return flagged / trials


def _autoregressive(rng: np.random.Generator, samples: int, resemblance: float) -> Floats:
    """AR(1) noise of standard deviation 1, from its stationary distribution."""
    shocks = rng.normal(0, np.sqrt(1 - resemblance**2), samples)
    path = np.empty(samples)
    path[0] = rng.normal()
    for i in range(1, samples):
        path[i] = resemblance * path[i - 1] + shocks[i]
    return path


def nanoseconds(calls: Floats) -> list[list[int]]:
    """Return times relative to `CALL_NS` as lists of samples."""
    found: list[list[int]] = (CALL_NS * calls).astype(np.int64).tolist()
    return found


def report(trials: int) -> Iterator[str]:
    """Yield the lines about samples."""
    yield from (*_TAILS_TEXT.splitlines(), "")
    heads = (
        "processes",
        "common",
        "p90 too low",
        "p99",
        "at the rank: p90",
        "p99",
        "p99's interval holds it",
    )
    yield from table(heads, _tail_rows(min(trials, _TAIL_TRIALS)))
    yield from ("", *_TUNINGS_TEXT.splitlines(), "")
    heads = ("processes", "tunings", "the interval of p50 holds the true median")
    yield from table(heads, _tuning_rows(trials // 4))
    yield from ("", "## Drift", "")
    heads = ("samples", "noise (sd)", "autocorrelation", "flagged without drift", "with 5 % drift")
    yield from table(heads, _drift_rows(trials // 5))


def _tail_rows(trials: int) -> Iterator[tuple[str, ...]]:
    for processes, resemblance in product((3, 6, 10), (0.0, 0.2, 0.5)):
        rng = np.random.default_rng([processes, int(10 * resemblance)])
        shares = tails(rng, processes, resemblance, trials)
        yield f"{processes}", f"{resemblance:.0%}", *(f"{value:.1%}" for value in shares)


def _tuning_rows(trials: int) -> Iterator[tuple[str, ...]]:
    for processes, tunings in ((6, 1), (6, 3), (10, 3), (10, 5), (10, 10)):
        held = over_tunings(np.random.default_rng([processes, tunings]), processes, tunings, trials)
        yield f"{processes}", f"{tunings}", f"{held:.1%}"


def _drift_rows(trials: int) -> Iterator[tuple[str, ...]]:
    for samples, noise, resemblance in product((210, 1500), (0.01, 0.05, 0.2), (0.0, 0.5, 0.8)):
        rng = np.random.default_rng([samples, int(100 * noise), int(10 * resemblance)])
        false, found = (alarms(rng, samples, noise, resemblance, change, trials) for change in (0.0, 0.05))
        yield f"{samples}", f"{noise:.0%}", f"{resemblance:g}", f"{false:.1%}", f"{found:.0%}"
