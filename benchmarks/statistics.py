"""How often the farm's statistics err: simulated cells whose truth is known, from fixed seeds.

    python -m benchmarks.statistics [--trials N]

Four questions: how often the interval of p50 holds the true median, how many calls exceed a published p99,
how often the drift flag is raised without a drift and how often with one. Nothing is timed, so the machine's
load does not matter.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from runtime.tools.drift import drift
from runtime.tools.samples import ProcessTimes, summarise
from runtime.tools.tails import mixture_quantile

Floats = NDArray[np.float64]

RESULT = Path(__file__).with_name("results") / "statistics.md"

_CALL_NS = 1e6
"""The median of a call in ns; every figure below is relative to it."""


def coverage(rng: np.random.Generator, processes: int, trials: int) -> float:
    """Share of cells whose `ci95` holds the true p50, where processes differ by 1 % and calls by 5 %."""
    held = 0
    for _ in range(trials):
        level = rng.normal(0, 0.01, (processes, 1))
        found = summarise(_times(np.exp(level + rng.normal(0, 0.05, (processes, 130)))))
        assert found.ci95 is not None
        held += found.ci95[0] <= 1.0 <= found.ci95[1]
    return held / trials


def exceedance(rng: np.random.Generator, processes: int, trials: int) -> float:
    """Mean share of calls that exceed the p99 of a cell, where every tenth process is twice as slow."""
    shares = []
    for _ in range(trials):
        slow = np.where(np.arange(processes) % 10 == 9, 2.0, 1.0)[:, None]
        calls = slow * np.exp(rng.normal(0, 0.05, (processes, 700)))
        p99 = mixture_quantile(_nanoseconds(calls), 0.99)
        fresh = slow * np.exp(rng.normal(0, 0.05, (processes, 20_000)))
        shares.append(float((fresh * _CALL_NS > p99).mean()))
    return float(np.mean(shares))


def alarms(
    rng: np.random.Generator, samples: int, noise: float, resemblance: float, change: float, trials: int
) -> float:
    """Share of loops that are flagged for drift: AR(1) noise of this sd, changing linearly by `change`."""
    flagged = 0
    for _ in range(trials):
        path = noise * _autoregressive(rng, samples, resemblance)
        loop = np.exp(path + np.linspace(0, np.log1p(change), samples))
        found = drift((_CALL_NS * loop).astype(np.int64))
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


def _times(calls: Floats) -> list[ProcessTimes]:
    return [ProcessTimes("warm", 1, 1, samples) for samples in _nanoseconds(calls)]


def _nanoseconds(calls: Floats) -> list[list[int]]:
    found: list[list[int]] = (_CALL_NS * calls).astype(np.int64).tolist()
    return found


def report(trials: int) -> Iterator[str]:
    """The lines of the result file."""
    yield "# How often the statistics err"
    yield ""
    yield f"`python -m benchmarks.statistics --trials {trials}`; simulated from fixed seeds."
    yield ""
    yield "| processes | the 95 % interval of p50 holds the true median | calls above p99 |"
    yield "|---|---|---|"
    for processes in (3, 5, 10, 20):
        rng = np.random.default_rng(processes)
        held = coverage(rng, processes, trials)
        above = f"{exceedance(rng, processes, max(1, trials // 20)):.2%}" if processes >= 10 else ""
        yield f"| {processes} | {held:.1%} | {above} |"
    yield ""
    yield "| samples | noise (sd) | autocorrelation | flagged without drift | with 5 % drift |"
    yield "|---|---|---|---|---|"
    for samples in (210, 300, 1500):
        for noise in (0.01, 0.05, 0.2):
            for resemblance in (0.0, 0.5, 0.8):
                rng = np.random.default_rng([samples, int(100 * noise), int(10 * resemblance)])
                false = alarms(rng, samples, noise, resemblance, 0.0, trials)
                found = alarms(rng, samples, noise, resemblance, 0.05, trials)
                yield f"| {samples} | {noise:.0%} | {resemblance:g} | {false:.1%} | {found:.0%} |"


def main() -> None:
    """Simulate, print, and write `results/statistics.md`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000, help="simulated cells per figure")
    text = "\n".join(report(parser.parse_args().trials)) + "\n"
    RESULT.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
