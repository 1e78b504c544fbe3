"""Decides after a block which arms go on where only the best one is sought: successive halving.

Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization" (AISTATS
2016). All arms get a few blocks, the better half of them twice as many, and so on to two, which are compared
by the blocks that they share. Like the rule of `agent.runner.judge.stopping` it reads no clock.
"""

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Final

from agent.runner.judge.stopping import DIFFERENT_FROM_BLOCK, ArmState, Spent, Stopped
from agent.wire.plan import MeasurePlan
from runtime.common.statistics import estimate
from runtime.common.verdict import FAR, verdict

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
    logs = figures[0] if len(arms) == 1 else [b - a for a, b in zip(*figures, strict=False)]
    if not logs or len({len(one) for one in figures}) > 1:
        return False
    found = estimate(logs)
    allowance = max(arm.allowance for arm in arms.values())
    if len(arms) == 1:
        return found.half is not None and found.half + allowance <= plan.target
    return verdict(found.centre, found.half, allowance, same=ALIKE) != "open"
