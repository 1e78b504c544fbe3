"""How often the farm's statistics err: simulated cells whose truth is known, from fixed seeds.

    python -m benchmarks.statistics [--trials N]

Six questions: how often the interval of p50 holds the true median, also over tunings, how many calls exceed
a published p99, how often two equal delegates are told apart and what drift does to their ratio, how often
`farm compare` finds a delegate that is 3 % slower, how often the drift flag is raised without a drift and how
often with one. Nothing is timed, so the machine's load does not matter.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agent.attempt.files import ProcessReport
from agent.runner.blocks import drawn_order, paired_ratio
from agent.wire.measurement import ProcessSamples, Ratio
from agent.wire.messages import JobSpec
from orchestrator.manifest.plans import LEVELS
from orchestrator.results.regression import PAIRED_THRESHOLD, by_blocks, verdict_over
from orchestrator.results.speedups import verdict_of
from runtime.tools.drift import drift
from runtime.tools.samples import ProcessTimes, geometric_mean, summarise
from runtime.tools.tails import mixture_quantile
from tests.reports import write_report
from tests.tree import tree

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


TUNING_SD, PROCESS_SD, CALL_SD = 0.015, 0.01, 0.05
"""Standard deviations, as shares, by which tunings, the processes of one and the calls of one differ."""


def coverage_over_tunings(
    rng: np.random.Generator, processes: int, tunings: int, slows: float, trials: int
) -> float:
    """Share of cells whose `ci95` holds the true p50, where tunings vary too and the machine slows linearly.

    The processes take turns over the tunings; the truth is that of all tunings, in the middle of the session.
    """
    held = 0
    turns = np.arange(processes) % tunings
    slope = np.log1p(slows) * np.linspace(-0.5, 0.5, processes)
    for _ in range(trials):
        level = rng.normal(0, TUNING_SD, tunings)[turns] + rng.normal(0, PROCESS_SD, processes) + slope
        calls = np.exp(level[:, None] + rng.normal(0, CALL_SD, (processes, 130)))
        times = zip(_nanoseconds(calls), turns.tolist(), strict=True)
        found = summarise([ProcessTimes("warm", 1, 1, samples, tuning) for samples, tuning in times])
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


@dataclass(frozen=True, slots=True)
class Compared:
    """Comparisons of a delegate with itself. `paired`, `sequential`: the geometric mean of their ratios, by
    blocks and of two medians one after the other; `false`: the share of verdicts that tell the two apart;
    `held`: the share of intervals that hold 1.
    """

    paired: float
    sequential: float
    false: float
    held: float


def compared(rng: np.random.Generator, blocks: int, change: float, trials: int) -> Compared:
    """Compare a delegate with itself on a machine that slows linearly by `change` over the session.

    Processes differ by 1 % and calls by 5 %; every process takes the same part of the session.
    """
    ratios, quotients, false, held = [], [], 0, 0
    for trial in range(trials):
        levels = np.linspace(0, np.log1p(change), 2 * blocks) + rng.normal(0, 0.01, 2 * blocks)
        calls = np.exp(levels[:, None] + rng.normal(0, 0.05, (2 * blocks, 130)))
        found = _paired(calls, trial)
        assert found.ci95 is not None
        ratios.append(found.median)
        false += verdict_of(found) in ("faster", "slower")
        held += found.ci95[0] <= 1.0 <= found.ci95[1]
        halves = summarise(_times(calls[:blocks])), summarise(_times(calls[blocks:]))
        quotients.append(float(halves[0].p50 or 0.0) / float(halves[1].p50 or 1.0))
    return Compared(geometric_mean(ratios), geometric_mean(quotients), false / trials, held / trials)


def _paired(calls: Floats, seed: int, slower: float = 0.0) -> Ratio:
    """The ratio of the second arm by blocks, which is slower by a share; `calls`: a row for each process.

    The processes come in the order of their times; each block has one of each arm, in the order it draws.
    """
    arms: dict[str, list[ProcessReport]] = {"a": [], "b": []}
    slots = iter(calls)
    for block in range(1, 1 + len(calls) // 2):
        for name in drawn_order(arms, seed, block):
            took = next(slots) * (1.0 + (slower if name == "b" else 0.0))
            arms[name].append(_report(block, *_nanoseconds(took[None])))
    found = paired_ratio(arms["b"], arms["a"], _JOB, seed)
    assert found is not None
    return found


def told(rng: np.random.Generator, blocks: int, process_sd: float, slower: float, trials: int) -> float:
    """Share of comparisons by blocks in which `farm compare` tells a delegate from one that is slower by a
    share, on a machine that slows by 3 % over the session.
    """
    count = 0
    for trial in range(trials):
        levels = np.linspace(0, np.log1p(0.03), 2 * blocks) + rng.normal(0, process_sd, 2 * blocks)
        calls = np.exp(levels[:, None] + rng.normal(0, CALL_SD, (2 * blocks, 130)))
        change = by_blocks(_paired(calls, trial, slower))
        count += verdict_over(change, change.p, PAIRED_THRESHOLD) in ("slower", "faster")
    return count / trials


_JOB = JobSpec(
    attempt_id="a", attempt_no=1, cell_id="c", epoch=1, device_id="host-cpu", model_id="m",
    model_sha256="0" * 64, model_bytes=1, delegate="cpu", delegate_kind="cpu",
)  # fmt: skip


def _report(block: int, invoke_ns: list[int]) -> ProcessReport:
    samples = ProcessSamples(
        index=block, cache="warm", init_ns=1, first_ns=1, warmup_ns=(), invoke_ns=tuple(invoke_ns),
        memory_peak_bytes=0, memory_before_bytes=0,
    )  # fmt: skip
    return ProcessReport(samples=samples)


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
    yield f"Tunings differ by {TUNING_SD:.1%}, processes by {PROCESS_SD:.0%}, calls by {CALL_SD:.0%};"
    yield "with one tuning the interval is over processes and holds for this tuning alone."
    yield ""
    yield "| processes | tunings | machine slows by | the 95 % interval of p50 holds the true median |"
    yield "|---|---|---|---|"
    for processes, tunings in ((3, 1), (5, 1), (10, 1), (3, 3), (6, 3), (10, 3), (10, 5), (10, 10)):
        for slows in (0.0, 0.01):
            rng = np.random.default_rng([processes, tunings, int(100 * slows)])
            held = coverage_over_tunings(rng, processes, tunings, slows, trials)
            yield f"| {processes} | {tunings} | {slows:.0%} | {held:.1%} |"
    yield ""
    yield "A delegate against itself, while the machine slows; false: called faster or slower."
    yield ""
    yield "| blocks | slows by | false verdicts | intervals with 1 | paired ratio | one after the other |"
    yield "|---|---|---|---|---|---|"
    for blocks in (5, 10, 20):
        for change in (0.0, 0.03):
            rng = np.random.default_rng([blocks, int(100 * change)])
            aa = compared(rng, blocks, change, 200)
            row = f"| {blocks} | {change:.0%} | {aa.false:.1%} | {aa.held:.1%} "
            yield row + f"| {aa.paired - 1:+.2%} | {aa.sequential - 1:+.2%} |"
    yield ""
    yield "What `farm compare` calls slower or faster by blocks, while the machine slows by 3 %;"
    yield f"`standard` has {LEVELS['standard'].processes} blocks, `publish` {LEVELS['publish'].processes}."
    yield ""
    yield "| blocks | processes differ by (sd) | equal ones told apart | 3 % slower found |"
    yield "|---|---|---|---|"
    for blocks in (LEVELS["standard"].processes, LEVELS["publish"].processes):
        for process_sd in (0.003, 0.005, 0.01):
            rng = np.random.default_rng([blocks, int(1000 * process_sd)])
            equal, slower = (told(rng, blocks, process_sd, share, trials) for share in (0.0, 0.03))
            yield f"| {blocks} | {process_sd:.1%} | {equal:.1%} | {slower:.1%} |"
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
    began = tree()
    text = "\n".join(report(parser.parse_args().trials)) + "\n"
    write_report(RESULT, text, began, 0)
    print(text)


if __name__ == "__main__":
    main()
