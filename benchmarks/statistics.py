"""Measures the errors of the farm's statistics: simulated cells whose truth is known, from fixed seeds.

    python -m benchmarks.statistics [--trials N]

Blocks of alternating slices on a noisy machine (`benchmarks.noisy_blocks`) are measured until the rule of the
runner stops them: how often the interval at the stop holds the truth, how often two equal arms are told
apart, and how often a difference is found. Then two sessions that `farm compare` compares unpaired
(`benchmarks.statistics_of_sessions`), and what samples say (`benchmarks.statistics_of_samples`). Nothing is
timed, so the machine's load does not matter.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Final, TypeAlias

import numpy as np

from agent.runner.judge.stopping import ArmState, Stopped, after_block
from agent.wire.plan import MeasurePlan
from benchmarks import statistics_of_samples, statistics_of_sessions
from benchmarks.noisy_blocks import CALM, DEMO, Noise, block_logs, slice_medians
from orchestrator.manifest.plans import LEVELS
from runtime.common.statistics import Estimate, estimate
from runtime.common.verdict import Verdict, grade, verdict
from tests.reports import write_report
from tests.tree import tree

RESULT: Final = Path(__file__).with_name("results") / "statistics.md"

COVERAGE: Final = (0.94, 0.97)
"""Bounds of the share of intervals that hold the truth, which are to hold it in 95 %."""

MOST_FALSE: Final = 0.01
"""Share of comparisons of equal arms that may call one of them faster."""

FASTER_BY: Final = (0.0, 0.02, 0.05, 0.10, 0.50)
"""True differences, as shares."""

_ARMS: Final = 3
"""Arms of a block, the baseline among them: as many as the demo's."""

_AT_ONCE: Final = 250
"""Comparisons that are simulated together, which bounds the memory: about 1 GB at 40 blocks."""

_BLOCKS_TEXT: Final = f"""\
## Blocks until they stop

A baseline and {_ARMS - 1} contenders by alternating slices, on a machine whose speed comes in waves of
3 to 4 % over 0.1 to 2 s, with spikes, and processes that differ by 1 % besides; others take nothing. The
coverage is the share of intervals at the stop that hold the truth, H the median half width. Marks, in whole
per cent: coverage {COVERAGE[0]:.0%} to {COVERAGE[1]:.0%}; of equal arms at most {MOST_FALSE:.0%} faster or
slower. The rule and its constants were chosen on this noise, from other seeds.
"""

Logs: TypeAlias = list[list[float]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A comparison at its stop: the estimate of the ratio's logarithm less its truth, verdict and blocks."""

    off: float
    ratio: Estimate
    verdict: Verdict
    blocks: int
    stopped: Stopped

    @property
    def held(self) -> bool:
        """Whether the interval holds the truth."""
        return self.ratio.half is not None and abs(self.off) <= self.ratio.half


def outcomes(seed: int, plan: MeasurePlan, noise: Noise, faster_by: float, trials: int) -> list[Outcome]:
    """Measure so many blocks with a baseline and contenders that are all faster by this share."""
    rng, truth, found = np.random.default_rng(seed), math.log1p(faster_by), []
    for begin in range(0, trials, _AT_ONCE):
        count = min(_AT_ONCE, trials - begin)
        times, ratios = block_logs(slice_medians(rng, noise, count, plan.max_blocks, _ARMS))
        # Both are logarithms, in which being faster by a share is a shift.
        ratios += truth
        for own_times, own_ratios in zip(times.tolist(), ratios.tolist(), strict=True):
            found += _measured(plan, own_times, own_ratios, truth)
    return found


def _measured(plan: MeasurePlan, times: Logs, ratios: Logs, truth: float) -> Iterator[Outcome]:
    """Yield the outcome of each contender; `times` and `ratios` by block and arm, the baseline first."""
    stopped: dict[str, Stopped | None] = {}
    for blocks in range(1, plan.max_blocks + 1):
        arms = {"0": ArmState([logs[0] for logs in times[:blocks]])}
        for arm in range(1, _ARMS):
            own = [logs[arm] for logs in times[:blocks]], [logs[arm - 1] for logs in ratios[:blocks]]
            arms[str(arm)] = ArmState(*own, stopped=stopped.get(str(arm)))
        before, stopped = stopped, after_block(plan, blocks, arms, "0")
        for arm in range(1, _ARMS):
            why = stopped[str(arm)]
            # Not stopped yet, or its outcome was told when it stopped.
            if why is None or before.get(str(arm)) is not None:
                continue
            ratio = estimate([logs[arm - 1] for logs in ratios[:blocks]])
            said = verdict(ratio.centre, ratio.half)
            yield Outcome(ratio.centre - truth, ratio, said, blocks, why)
        if stopped["0"] is not None:
            return


def share(found: Sequence[Outcome], *verdicts: Verdict) -> float:
    """Return the share of the comparisons that have one of these verdicts."""
    return fmean(one.verdict in verdicts for one in found)


def _under_the_rule(trials: int) -> Iterator[str]:
    """Yield the lines about blocks until they stop."""
    for noise, machine in ((DEMO, "10 to 25 % of the processes slow (x 1.5)"), (CALM, "no slow processes")):
        yield f"**{machine}**"
        yield ""
        yield "| level | faster by | coverage | faster | same | slower | open | blocks | H | noisy |"
        yield "|---" * 10 + "|"
        missed = []
        for number, (level, plan) in enumerate(LEVELS.items()):
            for faster_by in FASTER_BY:
                # A seed for each level and difference, so that no two rows of a table err together.
                found = outcomes(1000 * number + round(1000 * faster_by), plan, noise, faster_by, trials)
                held = fmean(one.held for one in found)
                halves = [math.inf if one.ratio.half is None else one.ratio.half for one in found]
                cells = [f"{share(found, said):.1%}" for said in ("faster", "same", "slower", "open")]
                noisy = fmean(grade(half, 0.0) == "noisy" for half in halves)
                yield (
                    f"| {level} | {faster_by:.0%} | {held:.1%} | {' | '.join(cells)} | "
                    f"{fmean(one.blocks for one in found):.1f} | {median(halves):.1%} | {noisy:.0%} |"
                )
                if not COVERAGE[0] <= round(held, 2) <= COVERAGE[1]:
                    missed.append(f"{level}, {faster_by:.0%}: coverage {held:.1%}")
                if not faster_by and share(found, "faster", "slower") > MOST_FALSE:
                    missed.append(f"{level}: {share(found, 'faster', 'slower'):.1%} false verdicts")
        yield ""
        yield f"Marks: {'met' if not missed else 'missed: ' + '; '.join(missed)}."
        yield ""


def report(trials: int) -> Iterator[str]:
    """Yield the lines of the result file."""
    yield from ("# How often the statistics err", "")
    yield from (f"`python -m benchmarks.statistics --trials {trials}`; simulated from fixed seeds.", "")
    yield from (*_BLOCKS_TEXT.splitlines(), "")
    yield from _under_the_rule(trials)
    yield from statistics_of_sessions.report(trials)
    yield ""
    yield from statistics_of_samples.report(trials)


def main() -> None:
    """Simulate, print, and write `results/statistics.md`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=5000, help="simulated blocks or cells per figure")
    trials, began = parser.parse_args().trials, tree()
    text = "\n".join(report(trials)) + "\n"
    write_report(RESULT, text, began, 0)
    print(text)


if __name__ == "__main__":
    main()
