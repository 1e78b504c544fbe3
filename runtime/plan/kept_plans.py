"""Plans of earlier input shapes, kept ready for inputs that are resized back and forth."""

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.delegates.partition import DelegationReport
from runtime.ops.support.value import Array, Shape
from runtime.plan.execution import Execution


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """An execution with what else is known of a subgraph for its input shapes."""

    execution: Execution
    report: DelegationReport | None
    inferred: dict[int, Shape]
    constants: dict[int, Array]


class KeptPlans:
    """At most `most` plans, each with its memory and its delegates' partitions; the oldest goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._plans: dict[tuple[tuple[int, Shape], ...], KeptPlan] = {}

    def keep(self, shapes: Mapping[int, Shape], plan: KeptPlan) -> None:
        """Put a plan aside for these input shapes. What is one too many is released."""
        self._plans[_key(shapes)] = plan
        while len(self._plans) > self._most:
            # A dict keeps the order of insertion, and `take` removes: the first one was put aside the longest
            # ago.
            self._plans.pop(next(iter(self._plans))).execution.close()

    def take(self, shapes: Mapping[int, Shape]) -> KeptPlan | None:
        """Remove and return the plan for these input shapes, now the caller's own; None if there is none."""
        return self._plans.pop(_key(shapes), None)

    def close(self) -> None:
        """Release all of them."""
        for plan in self._plans.values():
            plan.execution.close()
        self._plans.clear()


def _key(shapes: Mapping[int, Shape]) -> tuple[tuple[int, Shape], ...]:
    return tuple(sorted(shapes.items()))
