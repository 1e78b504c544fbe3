"""Groups the operators that a delegate left to the CPU by reason, with the option that would change it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent.wire.measurement import Fallback

_OPTIONS = (
    (re.compile(r"\(cost_aware_partitioning\)"), "cost_aware_partitioning: false"),
    (re.compile(r"smaller partition than the \d+ that .* may take"), "a greater max_delegated_partitions"),
    (re.compile(r"takes none of fewer than \d+ operators"), "a smaller min_nodes_per_partition"),
    (re.compile(r"excluded_operators names it"), "a list excluded_operators without it"),
    (re.compile(r"option enable_quantization is off"), "enable_quantization: true"),
    (
        re.compile(r"is not among those to delegate"),
        "other first_delegate_node_index, last_delegate_node_index",
    ),
)
"""What a reason says, with the option of the delegate that would change it. The tests take the texts from the
delegates themselves."""

_SINGULAR = re.compile(r"'[^']*'|\"[^\"]*\"|\d[\d,.x×]*")  # noqa: RUF001  # multiplication sign of shapes
"""What differs between two operators that stay on the CPU for one reason: names of tensors, sizes, counts."""


@dataclass(frozen=True, slots=True)
class FallbackGroup:
    """Operators with one reason: `reason` is that of the first, `operators` are (name, indices) of all.

    `option` would change it; empty where none would.
    """

    reason: str
    operators: tuple[tuple[str, tuple[int, ...]], ...]
    option: str

    @property
    def count(self) -> int:
        """Operators in the group."""
        return sum(len(indices) for _, indices in self.operators)

    @property
    def named(self) -> str:
        """Write `3 CONV_2D (3, 5, 7), ADD (17)`, with a dash for what lies between two indices."""
        return ", ".join(
            f"{f'{len(indices)} ' if len(indices) > 1 else ''}{name} ({_ranges(indices)})"
            for name, indices in self.operators
        )


def grouped(fallbacks: Sequence[Fallback]) -> tuple[FallbackGroup, ...]:
    """Group the fallbacks, most operators first. Names of tensors and figures do not tell reasons apart."""
    found: dict[str, list[Fallback]] = {}
    for one in fallbacks:
        found.setdefault(_SINGULAR.sub("#", one.reason), []).append(one)
    groups = (_group(members) for members in found.values())
    return tuple(sorted(groups, key=lambda group: -group.count))


def _group(members: Sequence[Fallback]) -> FallbackGroup:
    operators: dict[str, list[int]] = {}
    for one in members:
        operators.setdefault(one.op, []).append(one.index)
    reason = members[0].reason
    option = next((option for text, option in _OPTIONS if text.search(reason)), "")
    return FallbackGroup(reason, tuple((name, tuple(found)) for name, found in operators.items()), option)


def _ranges(indices: Sequence[int]) -> str:
    """Write indices; a run of them as its first and last with an en dash between."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ", ".join(str(low) if low == high else f"{low}\N{EN DASH}{high}" for low, high in runs)
