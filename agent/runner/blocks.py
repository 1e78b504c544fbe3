"""Blocks: one fresh process of each arm, in an order drawn for each block; and the ratios that they give.

What drifts while a campaign runs (heat, clocks, other load) is the same within a block, and so cancels in a
ratio of two processes of one block; the drawn order keeps what is left of it from favouring an arm.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from agent.attempt.files import ProcessReport
from agent.wire.measurement import Ratio, baseline_id
from agent.wire.messages import JobSpec
from runtime.tools.samples import geometric_mean, interval_of_medians, percentile


def arm_name(job: JobSpec) -> str:
    """`delegate@device`, by which the arms of a comparison are told apart."""
    return f"{job.delegate}@{job.device_id}"


def drawn_order(names: Iterable[str], seed: int, block: int) -> list[str]:
    """Return the arms' order in a block, the same for the same seed on every machine."""
    ordered = sorted(names)
    random.Random(f"{seed}:{block}").shuffle(ordered)  # noqa: S311  # an order of work, no secret
    return ordered


def paired_ratio(
    own: Sequence[ProcessReport], base: Sequence[ProcessReport], baseline: JobSpec, seed: int, note: str = ""
) -> Ratio | None:
    """Return the baseline's time over the own one, block by block; None where no block has both.

    `note` says in what the two differ beside the delegate, and stands beside the baseline's name.
    """
    bases = _medians(base)
    ratios = {block: bases[block] / median for block, median in _medians(own).items() if block in bases}
    if not ratios:
        return None
    groups: dict[tuple[int, int], list[float]] = {}
    own_tunings, base_tunings = _tunings(own), _tunings(base)
    for block, ratio in ratios.items():
        groups.setdefault((own_tunings[block], base_tunings[block]), []).append(ratio)
    # Blocks of one tuning share its choices: they are repetitions of one another, not of the comparison.
    units = [geometric_mean(group) for group in groups.values()] if len(groups) > 1 else [*ratios.values()]
    return Ratio(
        against=arm_name(baseline) + note,
        baseline_id=baseline_id(baseline.delegate_kind, baseline.delegate_options),
        device_id=baseline.device_id,
        median=geometric_mean(units),
        ci95=interval_of_medians(units),
        blocks=len(ratios),
        seed=seed,
        tunings=len(groups),
    )


def _tunings(reports: Sequence[ProcessReport]) -> dict[int, int]:
    return {report.samples.index: report.samples.tuning for report in reports if report.samples is not None}


def _medians(reports: Sequence[ProcessReport]) -> dict[int, float]:
    """Return the median of each timed process, by the block that it belongs to."""
    timed = (report.samples for report in reports if report.samples is not None)
    found = {s.index: percentile(s.invoke_ns, 0.5) / s.batch for s in timed if s.invoke_ns}
    return {block: median for block, median in found.items() if median > 0.0}
