"""Measures the errors of `farm compare` over two sessions of a cell, one measured after the other.

Part of `python -m benchmarks.statistics`: simulated cells whose truth is known.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from agent.wire.plan import MeasurePlan
from benchmarks.noisy_blocks import CALM, DEMO, Noise, block_logs, slice_medians
from benchmarks.output import table
from orchestrator.manifest.plans import LEVELS
from orchestrator.results.change_estimates import Estimate, unpaired
from orchestrator.results.device_noise import Controls, DeviceNoise, spread_of
from runtime.common.statistics import estimate, freedom_of, quantile_for
from runtime.common.verdict import verdict

SESSION_SD: Final = 0.02
"""By how much sessions of one device differ, as a standard deviation."""

SERIES: Final = 5
"""Sessions of the series that tells this, as `farm devices noise` measures."""

MOST_FALSE: Final = 0.05
"""Share of equal cells that may be called different."""

_TEXT: Final = f"""\
## Two sessions

A cell measured twice, in sessions that differ by {SESSION_SD:.0%} (sd), on a device whose session variance
was told by {SERIES} sessions; the least blocks of the level. Mark: at most {MOST_FALSE:.0%} of equal cells
called faster or slower.
"""


def sessions(seed: int, plan: MeasurePlan, noise: Noise, slower_by: float, trials: int) -> list[Estimate]:
    """Compare two sessions of a cell, each with blocks of its own, on a device whose noise was measured.

    The series that tells its session variance is drawn anew for each.
    """
    rng, found = np.random.default_rng(seed), []
    blocks = plan.min_blocks
    times, _ = block_logs(slice_medians(rng, noise, 2 * trials, blocks, 1))
    shifts = rng.normal(0.0, SESSION_SD, (2 * trials, 1))
    cells = [estimate(logs) for logs in (times[:, :, 0] + shifts).tolist()]
    # Neighbours are the two sessions of one comparison.
    for first, second in zip(cells[::2], cells[1::2], strict=True):
        session_sd = math.expm1(float(np.std(rng.normal(0.0, SESSION_SD, SERIES), ddof=1)))
        device = DeviceNoise(0.0, session_sd, SERIES, "cpu", "")
        # A half width is the quantile times the standard error, whose square is the variance of the mean.
        variances = [((one.half or 0.0) / quantile_for(one.units)) ** 2 for one in (first, second)]
        log = first.centre - second.centre - math.log1p(slower_by)
        spread = spread_of(Controls(), device, device)
        found.append(unpaired(log, [(v, freedom_of(blocks)) for v in variances], spread))
    return found


def share_called(found: Sequence[Estimate]) -> float:
    """Return the share of unpaired ratios that are called faster or slower."""
    called = 0
    for one in found:
        assert one.ci95 is not None
        low, high = (math.log(end) for end in one.ci95)
        called += verdict((low + high) / 2.0, (high - low) / 2.0) in ("faster", "slower")
    return called / len(found)


def report(trials: int) -> Iterator[str]:
    """Yield the lines about sessions."""
    yield from (*_TEXT.splitlines(), "")
    heads = ("level", "slow processes", "equal, called different", "10 % slower, called different")
    yield from table(heads, _rows(trials))


def _rows(trials: int) -> Iterator[tuple[str, ...]]:
    for number, (level, plan) in enumerate(LEVELS.items()):
        for noise, text in ((DEMO, "10 to 25 %"), (CALM, "none")):
            equal, slower = (share_called(sessions(number, plan, noise, by, trials)) for by in (0.0, 0.10))
            yield level, text, f"{equal:.1%}", f"{slower:.1%}"
