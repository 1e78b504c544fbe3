"""The number of rounds of the next block, as cases of the pure rule: variances and costs, never
directions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from agent.runner.judge.stopping import LEAST_ROUNDS, MOST_LONGER, Cost, next_rounds, sizes_fact
from agent.wire.bounded import MOST_DERIVED_ROUNDS
from agent.wire.plan import MeasurePlan

PLAN = MeasurePlan()


def blocks(within: float, between: float, count: int = 4, rounds: int = 8) -> list[list[float]]:
    """Blocks whose rounds lie `within` to either side of their mean, and the means `between` of zero."""
    means = [between * (-1) ** block for block in range(count)]
    return [[mean + within * (-1) ** k for k in range(rounds)] for mean in means]


@dataclass(frozen=True)
class Case:
    """Groups of blocks, the seconds of a round and of the rest of a block, and the rounds of the next one."""

    groups: Sequence[Sequence[Sequence[float]]]
    rounds: int
    round_s: float = 0.3
    besides_s: float = 6.0
    finished: int = 4
    plan: MeasurePlan = field(default_factory=lambda: PLAN)


CASES: Mapping[str, Case] = {
    "all variance within": Case([blocks(0.03, 0.0)], MOST_DERIVED_ROUNDS),
    "nearly all": Case([blocks(0.03, 0.012)], MOST_DERIVED_ROUNDS),
    "all between": Case([blocks(0.0, 0.03)], LEAST_ROUNDS),
    "nearly all between": Case([blocks(0.01, 0.05)], LEAST_ROUNDS),
    "none at all": Case([blocks(0.0, 0.0)], LEAST_ROUNDS),
    # sqrt(6 / 0.3 * (pi / 2 * 8/7 * 0.03^2) / (4/3 * 0.018^2 - 8/7 * 0.03^2 / 8)) = 10.3
    "in between": Case([blocks(0.03, 0.018)], 10),
    "a dear start is worth more rounds": Case([blocks(0.03, 0.018)], 15, besides_s=12.0),
    "dear rounds are worth fewer": Case([blocks(0.03, 0.018)], 7, round_s=0.6),
    "never a block of more than half as long again": Case([blocks(0.03, 0.0)], 11, 1.0, 1.0),
    "the arms are pooled": Case([blocks(0.03, 0.0), blocks(0.0, 0.018)], 9),
    "tunings may differ as they like": Case(
        [blocks(0.03, 0.0, 2), [[x + 9 for x in b] for b in blocks(0.03, 0.0, 2)]], MOST_DERIVED_ROUNDS
    ),
    "blocks may differ in their rounds": Case(
        [[*blocks(0.03, 0.018, 2), *blocks(0.03, 0.018, 2, rounds=16)]], 9
    ),
    "dropped blocks say nothing": Case([[*blocks(0.03, 0.0), []]], MOST_DERIVED_ROUNDS),
    "two blocks say nothing": Case([blocks(0.03, 0.0, 2)], 7, finished=2),
    "one block of each tuning says nothing": Case([blocks(0.03, 0.0, 1)] * 4, 7),
    "no arm": Case([], 7),
    "no time": Case([blocks(0.03, 0.0)], 7, 0.0, 0.0),
    "fixed by the file": Case([blocks(0.03, 0.0)], 3, plan=MeasurePlan(rounds=3, rounds_fixed=True)),
    "begun with few": Case([blocks(0.03, 0.0)], 7, round_s=0.9, plan=MeasurePlan(rounds=3)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_next_block_has_the_rounds_of_its_case(case: Case) -> None:
    costs = [Cost(7, case.round_s, case.besides_s)] * case.finished
    found = next_rounds(case.plan, case.groups, costs)
    assert found == case.rounds
    mirrored = [[[-log for log in rounds] for rounds in group] for group in case.groups]
    assert next_rounds(case.plan, mirrored, costs) == found, "the direction of a difference is not seen"
    shifted = [[[log + 0.7 for log in rounds] for rounds in group] for group in case.groups]
    assert next_rounds(case.plan, shifted, costs) == found, "nor is its size"
    if case.round_s:
        planned_s = case.besides_s + case.plan.rounds * case.round_s
        assert case.besides_s + found * case.round_s <= MOST_LONGER * planned_s


def test_another_block_takes_as_long_as_its_rounds_and_as_the_repeated_ones_so_far() -> None:
    assert Cost(10, 0.5, 2.0).of_next(7) == 7.0
    assert Cost(10, 0.5, 2.0).of_next(15) == 9.5


def test_the_choice_is_a_fact_of_the_result_where_there_was_one() -> None:
    assert sizes_fact([7, 7, 7, 12]) == ["rounds of each block, by variances and costs: 7, 7, 7, 12"]
    assert sizes_fact([7, 7, 7]) == []
