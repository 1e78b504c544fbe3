"""Choose how many rounds the next block has, by the variances and the costs of those that are finished.

The rule is that of Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time" (ISMM 2013), formula 8: a
level is repeated √(cost of the level above ÷ its own · its variance ÷ variance of the level above) times. It
sees variances and seconds, and no difference between arms: a choice by that would prefer one outcome.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from agent.wire.plan import MeasurePlan
from runtime.measure.samples.variation import OF_MEDIAN, nested

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
    degrees = sum(len(group) - 1 for group in comparable)
    within = between = 0.0
    for group in comparable:
        own, over = nested(group)
        within += (own or 0.0) * OF_MEDIAN * (len(group) - 1) / degrees
        between += (over or 0.0) * (len(group) - 1) / degrees
    if within <= 0.0:
        return min(plan.rounds, LEAST_ROUNDS)
    longest = math.floor(MOST_LONGER * plan.rounds + (MOST_LONGER - 1.0) * besides_s / round_s)
    most = min(plan.most_rounds, longest)
    if between <= 0.0:
        return most
    best = math.sqrt(besides_s / round_s * within / between)
    return min(most, max(LEAST_ROUNDS, round(best)))


def sizes_fact(sizes: Sequence[int]) -> list[str]:
    """Say how many rounds each block had, where not all had those of the plan."""
    listed = ", ".join(map(str, sizes))
    return [f"rounds of each block, by variances and costs: {listed}"] if len(set(sizes)) > 1 else []
