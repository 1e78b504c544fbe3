"""Groups why cells, figures and operators have no result, so that each reason is said once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent.wire.measurement import Fallback
from orchestrator.results.records import CellRecord

LONGEST_REASON = 140
"""Characters of a reason that are shown in a list: one line of most terminals. A longer one is cut, and
`farm show` has it in full."""


@dataclass(frozen=True, slots=True)
class Shared:
    """One reason and the cells that ended for it, in the order of the table."""

    text: str
    cells: tuple[CellRecord, ...]


def first_line(text: str, limit: int) -> str:
    """Return the first line of a reason in at most `limit` characters, and the number of further lines."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()] or [""]
    shown = lines[0] if len(lines[0]) <= limit else lines[0][:limit].rstrip() + "…"
    more = len(lines) - 1
    return shown + (f" (and {more} more line{'' if more == 1 else 's'})" if more else "")


def reasons_of(cells: Sequence[CellRecord]) -> tuple[Shared, ...]:
    """Return the reasons of the cells without a counted result, in order of first appearance."""
    found: dict[str, list[CellRecord]] = {}
    for cell in cells:
        if cell.reason is not None and cell.reason.text and has_no_result(cell):
            found.setdefault(cell.reason.text, []).append(cell)
    return tuple(Shared(text, tuple(members)) for text, members in found.items())


def has_no_result(cell: CellRecord) -> bool:
    """Whether a cell has no right result, so that a table shows a reason instead."""
    return cell.struck_out or cell.status != "done" or cell.measurement is None


class Footnotes:
    """Collects texts that several places refer to; equal texts share a mark (a, b, …, z, aa, …)."""

    def __init__(self) -> None:
        self._marks: dict[str, str] = {}

    def mark(self, text: str) -> str:
        """Return the mark of a text."""
        return self._marks.setdefault(text, _letters(len(self._marks)))

    def listed(self) -> tuple[tuple[str, str], ...]:
        """Return (mark, text) in order of first use."""
        return tuple((mark, text) for text, mark in self._marks.items())


def _letters(number: int) -> str:
    head, tail = divmod(number, 26)
    return (_letters(head - 1) if head else "") + chr(ord("a") + tail)


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
    """Return the groups, the one of most operators first. Names of tensors and figures do not tell reasons
    apart.
    """
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
