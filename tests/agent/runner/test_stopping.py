"""When the blocks of an arm end, as cases of the pure rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

import pytest

from agent.runner.judge.stopping import ArmState, Spent, Stopped, after_block, is_repeated
from agent.wire.plan import MeasurePlan

_PLAN = MeasurePlan(min_blocks=3, max_blocks=6, target=0.05)


def _around(centre: float, step: float, blocks: int) -> list[float]:
    """Logarithms about `centre`, of which neighbours are 2 * step apart."""
    return [centre + step * (-1) ** block for block in range(blocks)]


def _arm(
    times: Sequence[float] = (),
    ratios: Sequence[float] = (),
    allowance: float = 0.0,
    stopped: Stopped | None = None,
) -> ArmState:
    return ArmState(times or _around(2.0, 0.2, max(1, len(ratios))), ratios, allowance, stopped)


_VAGUE, _FASTER, _EQUAL, _NEAR = (
    _around(0.0, 0.3, 4), _around(0.5, 0.01, 4), _around(0.0, 0.005, 4), _around(0.03, 0.02, 4),
)  # fmt: skip
"""Ratios: known to no verdict; clearly above 1; clearly 1; between the two, known to 3.7 %."""


@dataclass(frozen=True)
class Case:
    """The arms after a block, and why each stops. The arm `base` is the baseline."""

    arms: Mapping[str, ArmState]
    stops: Mapping[str, Stopped | None]
    blocks: int = 4
    spent: Spent | None = None
    baseline: str | None = "base"
    plan: MeasurePlan = field(default_factory=lambda: _PLAN)


CASES: Mapping[str, Case] = {
    "a clear verdict ends the block for both": Case(
        {"base": _arm(), "gpu": _arm(ratios=_FASTER)}, {"base": "decided", "gpu": "decided"}
    ),
    "equal ones are decided too": Case(
        {"base": _arm(), "gpu": _arm(ratios=_EQUAL)}, {"base": "decided", "gpu": "decided"}
    ),
    "an open ratio at its target": Case(
        {"base": _arm(), "gpu": _arm(ratios=_NEAR)}, {"base": "target", "gpu": "target"}
    ),
    "the baseline's own time decides nothing beside others": Case(
        {"base": _arm(times=_around(2.0, 0.001, 4)), "gpu": _arm(ratios=_VAGUE)}, {"base": None, "gpu": None}
    ),
    "nor does a contender's": Case(
        {"base": _arm(), "gpu": _arm(times=_around(2.0, 0.001, 4), ratios=_VAGUE)},
        {"base": None, "gpu": None},
    ),
    "the baseline goes on with the last contender": Case(
        {"base": _arm(), "gpu": _arm(ratios=_FASTER), "cpu": _arm(ratios=_VAGUE)},
        {"base": None, "gpu": "decided", "cpu": None},
    ),
    "who has stopped stays so": Case(
        {"base": _arm(), "gpu": _arm(ratios=_VAGUE, stopped="decided"), "cpu": _arm(ratios=_NEAR)},
        {"base": "target", "gpu": "decided", "cpu": "target"},
    ),
    "the baseline stops for the worst reason": Case(
        {"base": _arm(), "gpu": _arm(ratios=_FASTER), "cpu": _arm(ratios=_VAGUE)},
        {"base": "blocks", "gpu": "decided", "cpu": "blocks"},
        blocks=6,
    ),
    "what others took widens the interval": Case(
        {"base": _arm(), "gpu": _arm(ratios=_NEAR, allowance=0.02)}, {"base": None, "gpu": None}
    ),
    "a clear verdict over a noisy ratio decides nothing": Case(
        {"base": _arm(), "gpu": _arm(ratios=_around(0.4, 0.1, 4))}, {"base": None, "gpu": None}
    ),
    "a verdict decides nothing for one that is asked for a precision": Case(
        {"base": _arm(), "gpu": replace(_arm(ratios=_around(0.5, 0.03, 4)), until_decided=False)},
        {"base": None, "gpu": None},
    ),
    "a far difference needs no fair figure": Case(
        {"base": _arm(), "gpu": _arm(ratios=_around(2.0, 0.1, 4))}, {"base": "decided", "gpu": "decided"}
    ),
    "or no fourth block": Case(
        {"base": _arm(), "gpu": _arm(ratios=_around(2.0, 0.01, 3))},
        {"base": "decided", "gpu": "decided"},
        blocks=3,
    ),
    "but one of both": Case(
        {"base": _arm(), "gpu": _arm(ratios=_around(2.0, 0.1, 3))}, {"base": None, "gpu": None}, blocks=3
    ),
    "three blocks decide no difference": Case(
        {"base": _arm(), "gpu": _arm(ratios=_around(0.3, 0.02, 3))}, {"base": None, "gpu": None}, blocks=3
    ),
    "not even one that is known to the target": Case(
        {"base": _arm(), "gpu": _arm(ratios=_around(0.3, 0.01, 3))}, {"base": None, "gpu": None}, blocks=3
    ),
    "unless there are to be no more": Case(
        {"base": _arm(), "gpu": _arm(ratios=_around(0.3, 0.01, 3))},
        {"base": "decided", "gpu": "decided"},
        blocks=3,
        plan=MeasurePlan(min_blocks=3, max_blocks=3),
    ),
    "but that there is none": Case(
        {"base": _arm(), "gpu": _arm(ratios=_EQUAL[:3])}, {"base": "decided", "gpu": "decided"}, blocks=3
    ),
    "and can keep a verdict open": Case(
        {"base": _arm(), "gpu": _arm(ratios=_FASTER, allowance=0.5)}, {"base": None, "gpu": None}
    ),
    "never before the fewest blocks": Case(
        {"base": _arm(), "gpu": _arm(ratios=_FASTER)},
        {"base": None, "gpu": None},
        plan=MeasurePlan(min_blocks=5, max_blocks=6),
    ),
    "never from two units": Case(
        {"base": _arm(), "gpu": _arm(ratios=_FASTER[:2])},
        {"base": None, "gpu": None},
        blocks=2,
        plan=MeasurePlan(min_blocks=1, max_blocks=6),
    ),
    "no block with both": Case({"base": _arm(), "gpu": _arm()}, {"base": None, "gpu": None}),
    "the budget ends all that goes on": Case(
        {"base": _arm(), "gpu": _arm(ratios=_FASTER), "cpu": _arm(ratios=_VAGUE)},
        {"base": "budget", "gpu": "decided", "cpu": "budget"},
        spent="budget",
    ),
    "time ends even the first blocks": Case(
        {"base": _arm(), "gpu": _arm(ratios=_FASTER[:1])}, {"base": "time", "gpu": "time"}, 1, "time"
    ),
    "the last block comes before the budget": Case(
        {"base": _arm(), "gpu": _arm(ratios=_VAGUE)}, {"base": "blocks", "gpu": "blocks"}, 6, "budget"
    ),
    "without a baseline the own time counts": Case(
        {"gpu": _arm(times=_around(2.0, 0.01, 4)), "cpu": _arm(times=_VAGUE)},
        {"gpu": "target", "cpu": None},
        baseline=None,
    ),
    "a baseline that has died leaves the own time": Case(
        {"gpu": _arm(times=_around(2.0, 0.01, 4), ratios=_VAGUE)}, {"gpu": "target"}
    ),
    "a baseline that is left alone is measured for itself": Case(
        {"base": _arm(times=_around(2.0, 0.01, 4))}, {"base": "target"}
    ),
    "alone and vague": Case({"base": _arm(times=_VAGUE)}, {"base": None}),
    "no arm": Case({}, {}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_arm_stops_for_the_reason_of_its_case(case: Case) -> None:
    for order in permutations(case.arms):
        arms = {name: case.arms[name] for name in order}
        found = after_block(case.plan, case.blocks, arms, case.baseline, spent=case.spent)
        assert found == case.stops


@pytest.mark.parametrize(
    ("disturbed", "repeated", "again"),
    [
        ("-", 0, False),
        ("x", 0, True),
        ("--x", 0, True),
        ("x-", 1, False),
        ("x-x", 1, True),
        ("x--x", 2, False),
        ("-x-x", 2, False),
        ("xx", 1, False),
        ("x-x", 0, True),
        ("xx-x", 1, False),
        ("xx--x", 1, True),
    ],
    ids=str,
)
def test_a_disturbed_block_is_measured_once_more_where_disturbance_is_not_the_rule(
    disturbed: str, repeated: int, again: bool
) -> None:
    assert is_repeated([sign == "x" for sign in disturbed], repeated, 2) is again
