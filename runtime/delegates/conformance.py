"""The result of a check of a device's operators, and its storage by a delegate.

`runtime.tools.operator_check` compares every operator of a delegate with the CPU path on one device. What
differs there is not delegated to that device any more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Conformance:
    """Operators by name: those whose outputs agreed with the CPU path, and how the others differed."""

    agreed: tuple[str, ...] = ()
    wrong: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        text = f"{len(self.agreed)} operators agree with the CPU path"
        return f"{text}, {len(self.wrong)} do not: {', '.join(self.wrong)}" if self.wrong else text


@runtime_checkable
class Checkable(Protocol):
    """A delegate that keeps, for its device, the result of a check of its operators."""

    def conformance(self) -> Conformance | None:
        """Return the result of an earlier check of the device with the same kernels; None if there was
        none.
        """

    def keep_conformance(self, found: Conformance) -> None:
        """Keep what a check found, for models that are opened from now on."""
