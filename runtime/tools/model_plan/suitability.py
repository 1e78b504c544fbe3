"""Says in a word how a model suits a delegate: from its plan, before anything runs."""

from dataclasses import dataclass
from typing import Final, Literal

from runtime.model.arithmetic import operator_macs
from runtime.tools.model_plan.advice import Advice, advice
from runtime.tools.model_plan.model import ModelPlan

Verdict = Literal["suits", "change", "not"]

_MOST_ON_CPU: Final = 0.5
"""The share of the arithmetic on the CPU beyond which a model does not suit a delegate: what it takes is then
the smaller part, so that it can make a run at best twice as fast."""


@dataclass(frozen=True, slots=True)
class Suitability:
    """A verdict with what it rests on: `change` where operators, given by index, would have to be changed.

    `cpu_share`: the share of the model's products that stays on the CPU, 0 to 1, or of its operators where it
    multiplies no matrices.
    """

    verdict: Verdict
    cpu_share: float
    operators: tuple[int, ...]
    pieces: tuple[Advice, ...]

    @property
    def text(self) -> str:
        """The verdict in words."""
        count = len(self.operators)
        words = {
            "suits": "suits the GPU",
            "change": f"{count} operator{'' if count == 1 else 's'} to change",
            "not": "does not suit the GPU",
        }
        return words[self.verdict]


def suitability(plan: ModelPlan) -> Suitability:
    """Judge a plan by the advice that applies to it and by what stays on the CPU."""
    pieces = advice(plan)
    left = {one.index for one in plan.operators if one.place == "cpu"}
    advised = {operator for piece in pieces for operator in piece.operators}
    changed = tuple(sorted(left | advised))
    share = _cpu_share(plan, left)
    if not plan.partitions or share > _MOST_ON_CPU:
        return Suitability("not", share, changed, pieces)
    return Suitability("change" if changed else "suits", share, changed, pieces)


def _cpu_share(plan: ModelPlan, left: set[int]) -> float:
    macs = {one.index: operator_macs(one, plan.graph) for one in plan.graph.operators}
    total = sum(macs.values())
    if total:
        return sum(macs[index] for index in left) / total
    ran = [one for one in plan.operators if one.place != "constant"]
    return len(left) / len(ran) if ran else 0.0
