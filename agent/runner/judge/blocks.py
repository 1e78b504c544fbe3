"""Order the arms of a comparison by blocks and rounds, and take the ratios that the blocks give."""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Literal

from agent.attempt.files import ProcessReport
from agent.wire.measurement import BlockFigure, ProcessSamples, Ratio, baseline_id
from agent.wire.messages import JobSpec
from runtime.common.statistics import estimate, units
from runtime.measure.samples.summary import percentile


def drawn_order(names: Iterable[str], seed: int, block: int) -> list[str]:
    """Return the arms' order in a block, the same for the same seed on every machine."""
    ordered = sorted(names)
    # A text as the seed: its hash here is not Python's `hash`, which differs from process to process.
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


def block_figures(
    own: Sequence[ProcessReport],
    base: Sequence[ProcessReport] = (),
    allowances: Mapping[int, float] | None = None,
) -> list[BlockFigure]:
    """Return the figures of an arm's blocks in their order, with their ratios over the baseline's.

    The ratio of a block is the median, over its rounds, of the logarithm of the ratio of two slices' medians.
    `allowances`: of each block, the logarithm of what others can have slowed the arm by.
    """
    theirs = {samples.index: slice_medians(samples) for samples in _timed(base)}
    found: list[BlockFigure] = []
    again = False
    for samples in _timed(own):
        p50 = block_p50(samples)
        if not p50:
            # A block that was disturbed: the one that follows is in its place.
            again = bool(samples.slices)
            continue
        own_ns = slice_medians(samples)
        logs = _log_ratios(own_ns, theirs.get(samples.index, {}))
        figure = BlockFigure(
            p50_ns=p50,
            log_ratio=median(logs) if logs else None,
            allowance=(allowances or {}).get(samples.index, 0.0),
            rounds=len(own_ns),
            repeated=len(samples.slices) - len(own_ns),
            again=again,
            tuning=samples.tuning,
        )
        found.append(figure)
        again = False
    return found


def rounds_by_tuning(
    own: Sequence[ProcessReport], base: Sequence[ProcessReport] | None = None
) -> list[list[list[float]]]:
    """Return, for each tuning, the logarithms of the rounds of each of its blocks: of the ratios over a
    baseline, without one of the times.
    """
    theirs = {samples.index: slice_medians(samples) for samples in _timed(base or ())}
    found: dict[int, list[list[float]]] = {}
    for samples in _timed(own):
        own_ns = slice_medians(samples)
        over = dict.fromkeys(own_ns, 1.0) if base is None else theirs.get(samples.index, {})
        found.setdefault(samples.tuning, []).append(_log_ratios(own_ns, over))
    return list(found.values())


def _log_ratios(own_ns: Mapping[int, float], base_ns: Mapping[int, float]) -> list[float]:
    # Of the rounds that both have, and in which neither median is 0.
    return [math.log(base_ns[k] / own_ns[k]) for k in own_ns if base_ns.get(k) and own_ns[k]]


def added(earlier: Sequence[BlockFigure], blocks: Sequence[BlockFigure]) -> list[BlockFigure]:
    """Return earlier blocks and new ones.

    The new ones chose by timing anew. Where the result varies its tunings, theirs get new numbers; of a
    result of one tuning the interval is over blocks, and stays so.
    """
    varied = len({block.tuning for block in earlier}) > 1 or len({block.tuning for block in blocks}) > 1
    first = 1 + max((block.tuning for block in earlier), default=-1) if varied else 0
    return [*earlier, *(block.model_copy(update={"tuning": first + block.tuning}) for block in blocks)]


def time_units(blocks: Sequence[BlockFigure]) -> list[float]:
    """Return the logarithms of the p50s in ms over which p50 is estimated: of blocks, or of tunings."""
    # Divided before the logarithm, as the summary of samples does: it then is the same to the last bit.
    return units([math.log(block.p50_ns / 1e6) for block in blocks], [block.tuning for block in blocks])


def halved_units(reports: Sequence[ProcessReport], figure: Literal["p50", "p99"]) -> list[float]:
    """Return the logarithms of what arms are halved by: of one figure in ns of each block that counts."""
    timed = [samples for samples in _timed(reports) if samples.kept_ns]
    found = [block_p50(one) if figure == "p50" else percentile(one.kept_ns, 0.99) for one in timed]
    return [math.log(ns) for ns in found if ns]


def ratio_units(blocks: Sequence[BlockFigure]) -> list[float]:
    """Return the logarithms of the ratios over which the ratio is estimated, likewise."""
    compared = [(block.log_ratio, block.tuning) for block in blocks if block.log_ratio is not None]
    return units([log for log, _ in compared], [tuning for _, tuning in compared])


def allowance_of(blocks: Sequence[BlockFigure]) -> float:
    """Return the allowance of all blocks: the mean over their kept rounds."""
    rounds = sum(block.rounds for block in blocks)
    return sum(block.allowance * block.rounds for block in blocks) / rounds if rounds else 0.0


def paired_ratio(
    blocks: Sequence[BlockFigure], baseline: JobSpec, seed: int, allowance: float = 0.0, note: str = ""
) -> Ratio | None:
    """Return the baseline's time over the own one; None where no block has both.

    `note` says in what the two differ beside the delegate, and stands beside the baseline's name.
    `allowance`: that of the side from which others took more.
    """
    compared = [block for block in blocks if block.log_ratio is not None]
    if not compared:
        return None
    found = estimate(ratio_units(compared))
    return Ratio(
        against=f"{baseline.delegate}@{baseline.device_id}{note}",
        baseline_id=baseline_id(baseline.delegate_kind, baseline.delegate_options),
        device_id=baseline.device_id,
        median=found.value,
        ci95=found.interval,
        blocks=len(compared),
        seed=seed,
        tunings=len({block.tuning for block in compared}),
        allowance=allowance,
        spread=found.spread,
    )


def _timed(reports: Sequence[ProcessReport]) -> list[ProcessSamples]:
    return [report.samples for report in reports if report.samples is not None and report.samples.invoke_ns]
