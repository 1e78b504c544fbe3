"""Decides after a block whether to repeat it, which arms need another one, and how many rounds that has.

An arm is measured until its answer is known: that of an arm beside a baseline is its ratio, that of any other
its own time. The rule sees figures that are final, the blocks that were kept and whether time is left; it
reads no clock and starts nothing.

How many rounds: by the rule of Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time" (ISMM 2013),
formula 8: a level is repeated √(cost of the level above ÷ its own · its variance ÷ variance of the level
above) times. It sees variances and seconds, and no difference between arms: a choice by that would prefer one
outcome.

Where only the best arm is sought, arms leave by successive halving: Jamieson and Talwalkar, "Non-stochastic
Best Arm Identification and Hyperparameter Optimization" (AISTATS 2016). All get a few blocks, the better half
of them twice as many, and so on to two, which are compared by the blocks that they share.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, Literal, TypeAlias

from agent.wire.plan import MeasurePlan
from runtime.common.statistics import estimate
from runtime.common.verdict import FAIR, FAR, verdict
from runtime.measure.samples.variation import OF_MEDIAN, nested

Spent: TypeAlias = Literal["budget", "time"]
"""What has run out: the campaign's own budget, or the time that the agent grants the attempt."""

Stopped: TypeAlias = Literal["decided", "target", "behind", "blocks", "budget", "time", "cancelled"]
"""Why an arm needs no further block, in the words of `agent.wire.measurement.Quality`."""

_ORDER: Final[tuple[Stopped, ...]] = ("decided", "target", "behind", "blocks", "budget", "time", "cancelled")
"""From the best reason to stop to the worst."""

DIFFERENT_FROM_BLOCK: Final = 4
"""Blocks from which on a difference ends an arm. Chosen by `benchmarks/statistics.py`: three blocks can be
alike by chance, or all have met a slow process on the same side. From three on, `quick` told 1.1 % of equal
arms apart, from four on 0.3 %; a true difference then takes up to 0.7 blocks more."""


@dataclass(frozen=True, slots=True)
class ArmState:
    """An arm that is alive, as its blocks have it: natural logarithms of its units, blocks or tunings.

    `times`: of its p50s. `ratios`: of the baseline's time over its own, from the blocks that have both; empty
    for the baseline. Both come from `runtime.common.statistics.units`. `allowance`: as of
    `agent.wire.measurement.Quality`, for a ratio of the side that is worse off. `stopped`: why
    it stopped after an earlier block. `until_decided`: whether a verdict ends it; else its target alone does.
    `figures`: of what the plan halves by, one of each block; `wrong`: its outputs are.
    """

    times: Sequence[float]
    ratios: Sequence[float] = ()
    allowance: float = 0.0
    stopped: Stopped | None = None
    until_decided: bool = True
    figures: Sequence[float] = ()
    wrong: bool = False


def after_block(
    plan: MeasurePlan,
    blocks: int,
    arms: Mapping[str, ArmState],
    baseline: str | None = None,
    *,
    spent: Spent | None = None,
) -> dict[str, Stopped | None]:
    """Return for each arm why it stops after so many blocks, or None where it goes on.

    An arm that has stopped stays so. The baseline goes on while any other arm does, and stops for the worst
    of their reasons; where it is the only one left alive, it is measured for its own time.
    """
    others = {name: arm for name, arm in arms.items() if name != baseline}
    compared = baseline in arms
    reasons = {name: _reason(plan, blocks, arm, compared, spent) for name, arm in others.items()}
    if baseline is None or not compared:
        return reasons
    return reasons | {baseline: _of_baseline(plan, blocks, arms[baseline], reasons, spent)}


def is_repeated(disturbed: Sequence[bool], repeated: int, most: int) -> bool:
    """Return whether the last block is measured once more.

    `disturbed`: of each block and each repetition so far, whether more than half of its rounds were, by the
    counters. Where that is the rule and not the exception, to drop blocks would be to choose among them.
    """
    *before, last = disturbed
    return last and repeated < most and 2 * sum(before) <= len(before)


def _of_baseline(
    plan: MeasurePlan, blocks: int, arm: ArmState, others: Mapping[str, Stopped | None], spent: Spent | None
) -> Stopped | None:
    if arm.stopped is not None or not others:
        return _reason(plan, blocks, arm, False, spent)
    stopped = [reason for reason in others.values() if reason is not None]
    return max(stopped, key=_ORDER.index) if len(stopped) == len(others) else None


def _reason(
    plan: MeasurePlan, blocks: int, arm: ArmState, compared: bool, spent: Spent | None
) -> Stopped | None:
    """Return why the arm stops; `compared`: it stands beside a baseline, and its answer is its ratio."""
    if arm.stopped is not None:
        return arm.stopped
    if blocks >= plan.min_blocks:
        logs = arm.ratios if compared else arm.times
        known = _known(plan, blocks, arm, logs, compared) if logs else None
        if known is not None:
            return known
    return "blocks" if blocks >= plan.max_blocks else spent


def _known(
    plan: MeasurePlan, blocks: int, arm: ArmState, logs: Sequence[float], compared: bool
) -> Literal["decided", "target"] | None:
    """Return whether a ratio's verdict is decided, or else whether the figure is known to the target.

    A verdict that rests on a noisy figure decides nothing: an interval that is wide and yet excludes equality
    is that of a few slow processes more often than that of a difference, unless all of it is far from 1.
    """
    figure = estimate(logs)
    if figure.half is None:
        return None
    known_to = figure.half + arm.allowance
    if not arm.until_decided:
        return "target" if known_to <= plan.target else None
    is_far = compared and abs(figure.centre) - known_to > math.log(FAR)
    if is_far and (known_to <= FAIR or blocks >= DIFFERENT_FROM_BLOCK):
        return "decided"
    says = verdict(figure.centre, figure.half, arm.allowance) if compared else "open"
    if says in ("faster", "slower") and blocks < min(DIFFERENT_FROM_BLOCK, plan.max_blocks):
        return None
    if says != "open" and known_to <= FAIR:
        return "decided"
    return "target" if known_to <= plan.target else None


FEWEST_BLOCKS: Final = 3
"""Blocks whose variances are asked at the least. Chosen: as many as have an interval."""

LEAST_ROUNDS: Final = 5
"""Rounds of a block at the least. Chosen: the median of fewer follows one or two that met a slow state."""

MOST_LONGER: Final = 1.5
"""How many times as long as with the planned rounds a block may take. Chosen: the time of a cell stays about
what its preview says."""

Blocks: TypeAlias = Sequence[Sequence[float]]
"""The logarithms of the rounds that count, of each block of one arm and one tuning."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of a block: `round_s` for each of its `rounds`, `besides_s` for starts, warm-ups and ends."""

    rounds: int
    round_s: float
    besides_s: float

    def of_next(self, rounds: int) -> float:
        """Return the seconds of a block of so many rounds, with at least as many repeated ones as here."""
        return self.besides_s + max(rounds, self.rounds) * self.round_s


def next_rounds(plan: MeasurePlan, groups: Sequence[Blocks], costs: Sequence[Cost]) -> int:
    """Return how many rounds the next block has; `costs`: of each finished block.

    It is that of the plan where the campaign file fixes it, or where no group has two blocks to compare.
    """
    comparable = [[rounds for rounds in group if len(rounds) > 1] for group in groups]
    comparable = [group for group in comparable if len(group) > 1]
    round_s, besides_s = (sum(cost.round_s for cost in costs), sum(cost.besides_s for cost in costs))
    if plan.rounds_fixed or len(costs) < FEWEST_BLOCKS or not comparable or min(round_s, besides_s) <= 0.0:
        return plan.rounds
    # The variances of the groups are pooled by their degrees of freedom.
    degrees = sum(len(group) - 1 for group in comparable)
    within = between = 0.0
    for group in comparable:
        own, over = nested(group)
        # A block's figure is the median of its rounds, which varies by this factor more than their mean.
        within += (own or 0.0) * OF_MEDIAN * (len(group) - 1) / degrees
        between += (over or 0.0) * (len(group) - 1) / degrees
    # Rounds that do not differ: further ones tell nothing.
    if within <= 0.0:
        return min(plan.rounds, LEAST_ROUNDS)
    # From besides + n * round <= MOST_LONGER * (besides + planned * round), solved for n.
    longest = math.floor(MOST_LONGER * plan.rounds + (MOST_LONGER - 1.0) * besides_s / round_s)
    most = min(plan.most_rounds, longest)
    # Blocks that add no variance of their own: by the formula, a block is never long enough.
    if between <= 0.0:
        return most
    # Formula 8: the level is that of rounds, the one above it that of blocks.
    best = math.sqrt(besides_s / round_s * within / between)
    return min(most, max(LEAST_ROUNDS, round(best)))


def sizes_fact(sizes: Sequence[int]) -> list[str]:
    """Say how many rounds each block had, where not all had those of the plan."""
    listed = ", ".join(map(str, sizes))
    return [f"rounds of each block, by variances and costs: {listed}"] if len(set(sizes)) > 1 else []


FIRST_RUNG: Final = 2
"""Blocks after which the worse half leaves for the first time; then after each power of two. Chosen: one
block that met a slow process must not end the best arm, and each further one here is one of every arm."""

FINALISTS: Final = 2
"""Arms that go on at least: the best one and the runner-up."""

ALIKE: Final = 0.02
"""Relative difference within which two finalists count as equal. Chosen: whoever looks for the best options
would not notice less; it takes up to 16 blocks on a quiet machine."""


def after_halving(
    plan: MeasurePlan, blocks: int, arms: Mapping[str, ArmState], *, spent: Spent | None = None
) -> dict[str, Stopped | None]:
    """Return for each arm why it stops after so many blocks, or None where it goes on.

    An arm that has stopped stays so. Wrong ones leave at once, whatever their figures.
    """
    racing = {name: arm for name, arm in arms.items() if arm.stopped is None}
    left = _kept(blocks, racing)
    why: Stopped | None = "blocks" if blocks >= plan.max_blocks else spent
    if _is_known(plan, blocks, left):
        why = "decided" if len(left) == FINALISTS else "target"
    reasons: dict[str, Stopped | None] = dict.fromkeys(racing, "behind")
    return {name: arm.stopped for name, arm in arms.items()} | reasons | dict.fromkeys(left, why)


def _kept(blocks: int, arms: Mapping[str, ArmState]) -> dict[str, ArmState]:
    """Return the arms that stay in the race, at a rung the best first: half of them, and of these only those
    that a few slow processes can have put behind. Those that have no figure cannot be behind.
    """
    right = {name: arm for name, arm in arms.items() if not arm.wrong}
    # Powers of two alone have a single bit set.
    if blocks < FIRST_RUNG or blocks & (blocks - 1):
        return right
    centres = {name: fmean(arm.figures) for name, arm in right.items() if arm.figures}
    unknown = [name for name in right if name not in centres]
    order = sorted(centres, key=lambda name: centres[name])
    better = order[: max(FINALISTS, math.ceil(len(order) / 2))]
    near = [name for name in better if centres[name] - centres[order[0]] <= math.log(FAR)]
    return {
        name: right[name] for name in (*(near if len(near) >= FINALISTS else order[:FINALISTS]), *unknown)
    }


def _is_known(plan: MeasurePlan, blocks: int, arms: Mapping[str, ArmState]) -> bool:
    """Return whether the better of two is known, or they are alike; of one, whether its figure is known."""
    if blocks < max(plan.min_blocks, DIFFERENT_FROM_BLOCK) or not 0 < len(arms) <= FINALISTS:
        return False
    figures = [arm.figures for arm in arms.values()]
    # Block by block: a state of the machine that slowed both cancels out.
    logs = figures[0] if len(arms) == 1 else [b - a for a, b in zip(*figures, strict=False)]
    if not logs or len({len(one) for one in figures}) > 1:
        return False
    found = estimate(logs)
    allowance = max(arm.allowance for arm in arms.values())
    if len(arms) == 1:
        return found.half is not None and found.half + allowance <= plan.target
    return verdict(found.centre, found.half, allowance, same=ALIKE) != "open"
