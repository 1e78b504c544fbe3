"""Order the arms of a comparison by blocks and rounds, and take the ratios that the blocks give."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from agent.attempt.files import ProcessReport
from agent.wire.measurement import ProcessSamples, Ratio, baseline_id
from agent.wire.messages import JobSpec
from runtime.common.statistics import Estimate, estimate, units
from runtime.tools.samples import percentile


def drawn_order(names: Iterable[str], seed: int, block: int) -> list[str]:
    """Return the arms' order in a block, the same for the same seed on every machine."""
    ordered = sorted(names)
    random.Random(f"{seed}:{block}").shuffle(ordered)  # noqa: S311  # an order of work, no secret
    return ordered


def order_of_round(arms: int, number: int) -> list[int]:
    """Return the places of the arms in a round: reversed in every second one, and rotated after each two.

    Over twice as many rounds as arms every arm stands in every place equally often, and before every other
    one as often as behind it.
    """
    turn = (number // 2) % max(1, arms)
    places = [(place + turn) % arms for place in range(arms)]
    return places[::-1] if number % 2 else places


def slice_medians(samples: ProcessSamples) -> dict[int, float]:
    """Return the median of each slice that counts, in ns, by its round."""
    return {
        timed.round: percentile(invokes, 0.5)
        for timed, invokes in samples.by_slice()
        if timed.kept and invokes
    }


def block_p50(samples: ProcessSamples) -> float | None:
    """Return the p50 of a process in ns: the median of its slices' medians; None where it timed nothing."""
    medians = slice_medians(samples)
    return median(medians.values()) if medians else None


@dataclass(frozen=True, slots=True)
class Block:
    """What one block says of an arm: its p50 in ns, and the logarithm of the baseline's time over its own."""

    tuning: int
    p50_ns: float
    log_ratio: float | None = None
    base_tuning: int = 0


def blocks_of(own: Sequence[ProcessReport]) -> dict[int, Block]:
    """Return the blocks of an arm by their numbers."""
    found = {}
    for samples in _timed(own):
        p50 = block_p50(samples)
        if p50:
            found[samples.index] = Block(samples.tuning, p50)
    return found


def compared_blocks(own: Sequence[ProcessReport], base: Sequence[ProcessReport]) -> dict[int, Block]:
    """Return the blocks that an arm shares with the baseline, with their ratios.

    The ratio of a block is the median, over its rounds, of the logarithm of the ratio of two slices' medians.
    """
    theirs = {samples.index: samples for samples in _timed(base)}
    found = {}
    for samples in _timed(own):
        block = blocks_of([ProcessReport(samples=samples)]).get(samples.index)
        other = theirs.get(samples.index)
        if block is None or other is None:
            continue
        own_ns, base_ns = slice_medians(samples), slice_medians(other)
        logs = [math.log(base_ns[k] / own_ns[k]) for k in own_ns if base_ns.get(k) and own_ns[k]]
        if logs:
            found[samples.index] = replace(block, log_ratio=median(logs), base_tuning=other.tuning)
    return found


def time_units(blocks: Mapping[int, Block]) -> list[float]:
    """Return the logarithms of the p50s over which p50 is estimated: of blocks, or of tunings."""
    return units([math.log(b.p50_ns) for b in blocks.values()], [b.tuning for b in blocks.values()])


def ratio_units(blocks: Mapping[int, Block]) -> list[float]:
    """Return the logarithms of the ratios over which the ratio is estimated, likewise."""
    compared = [(b.log_ratio, (b.tuning, b.base_tuning)) for b in blocks.values() if b.log_ratio is not None]
    return units([log for log, _ in compared], [tunings for _, tunings in compared])


def paired_ratio(
    blocks: Mapping[int, Block], baseline: JobSpec, seed: int, allowance: float = 0.0, note: str = ""
) -> Ratio | None:
    """Return the baseline's time over the own one; None where no block has both.

    `note` says in what the two differ beside the delegate, and stands beside the baseline's name.
    `allowance`: the share that others took from either side.
    """
    logs = ratio_units(blocks)
    if not logs:
        return None
    found: Estimate = estimate(logs)
    pairs = {(b.tuning, b.base_tuning) for b in blocks.values() if b.log_ratio is not None}
    return Ratio(
        against=f"{baseline.delegate}@{baseline.device_id}{note}",
        baseline_id=baseline_id(baseline.delegate_kind, baseline.delegate_options),
        device_id=baseline.device_id,
        median=found.value,
        ci95=found.interval,
        blocks=len(blocks),
        seed=seed,
        tunings=len(pairs),
        allowance=allowance,
        spread=found.spread,
    )


def _timed(reports: Sequence[ProcessReport]) -> list[ProcessSamples]:
    return [report.samples for report in reports if report.samples is not None and report.samples.invoke_ns]
