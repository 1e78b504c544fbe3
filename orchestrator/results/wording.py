"""The signs and words of grades and verdicts, the same on terminals and pages.

Reasons why cells, figures and operators have no result are grouped, so that each is said once.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agent.wire.measurement import Fallback, Measurement
from orchestrator.results import format as text
from orchestrator.results.format import counted
from orchestrator.results.grading import Graded
from orchestrator.results.records import CellRecord, ComparedCell
from orchestrator.results.speedups import SpeedUp, Verdict

SIGNS: Final[Mapping[Verdict, str]] = {
    "faster": "▲", "slower": "▼", "same": "=", "open": "·", "unpaired": "≈", "void": "",
}  # fmt: skip
"""The sign of each verdict; a void ratio is not compared."""

WORDS: Final[Mapping[Verdict, str]] = {
    "faster": "faster", "slower": "slower", "same": "the same", "open": "open",
    "unpaired": "unpaired", "void": "not compared",
}  # fmt: skip
"""The same in words."""


_FACTOR = 1.1
"""Factor from which on a ratio below 1 without a verdict is written as slower: `0.97x`, but `2.0x slower`."""

_NEAR_KNOWN_TO = 0.01
"""How well a mean near 1 is taken to be known, so that it has two decimals."""

_STOPPED: Final = {
    "target": "the intervals are as narrow as asked for",
    "decided": "every verdict is decided",
    "behind": "others are better",
    "blocks": "all blocks were measured",
    "budget": "the budget was spent",
    "time": "the time limit was reached",
    "cancelled": "ended early by a cancel",
}
"""Why no further block was measured, in words."""


def ratio_text(found: SpeedUp) -> str:
    """Write a ratio as a factor: how much faster, or how much slower where the sign or the text says so."""
    known_to = None if found.half is None else found.half + found.allowance
    slower = found.verdict == "slower" or (found.verdict != "same" and found.ratio * _FACTOR < 1.0)
    factor = text.known(1.0 / found.ratio if slower else found.ratio, known_to)
    return f"{factor}x slower" if slower and found.verdict != "slower" else f"{factor}x"


def factor_text(ratio: float) -> str:
    """Write a mean ratio: `1.15x`, and `5.0x slower` of one below 1."""
    # templates/site.js writes the mean of the rows that are shown in the same way.
    near = 1.0 / _FACTOR < ratio < _FACTOR
    factor = text.known(max(ratio, 1.0 / ratio), _NEAR_KNOWN_TO if near else None)
    # `1.00x slower` would contradict itself.
    return f"{factor}x" if ratio >= 1.0 or float(factor) == 1.0 else f"{factor}x slower"


def grade_text(graded: Graded) -> str:
    """Write a grade with its numbers: `fair: known to 6 % (h 5 % + b 1 %)`; a void one with its reason."""
    if graded.grade == "void":
        return f"void: {graded.reason}" if graded.reason else "void"
    if graded.half is None or graded.known_to is None:
        return f"{graded.grade}: no interval"
    numbers = f"h {_percent(graded.half)} + b {_percent(graded.allowance)}"
    return f"{graded.grade}: known to {_percent(graded.known_to)} ({numbers})"


def short_grade(graded: Graded) -> str:
    """Write a grade with the one number that decides it: `fair ±6 %`."""
    if graded.grade == "void" or graded.known_to is None:
        return graded.grade
    return f"{graded.grade} ±{_percent(graded.known_to)}"


def known_percent(graded: Graded | None) -> str:
    """Write how well a figure is known, `6 %`; empty without an interval."""
    return "" if graded is None or graded.known_to is None else _percent(graded.known_to)


def _percent(logarithm: float) -> str:
    return text.percent(math.expm1(logarithm))


def decides(found: SpeedUp) -> str:
    """Say how many blocks would decide an open ratio."""
    if found.verdict != "open":
        return ""
    if found.stays_open:
        return f"{found.stays_open}, however many blocks there are"
    return f"about {found.blocks_needed} blocks would decide it"


def measured_text(m: Measurement) -> str:
    """Say how a cell was measured; of results of older agents the samples alone."""
    quality = m.quality
    if quality is None or not quality.blocks:
        return f"{text.count(m.samples)} samples"
    turns = "by turns" if quality.alternating else "one delegate after the other"
    again = f"; {quality.repeated_blocks} of {quality.blocks} blocks repeated"
    sizes = sorted({block.rounds for block in m.blocks})
    each = f" ({sizes[0]} to {sizes[-1]} a block)" if len(sizes) > 1 else ""
    rounds = f"; {quality.repeated} of {quality.rounds} rounds{each} repeated" if quality.rounds else ""
    stopped = f"; stopped: {_STOPPED[quality.stopped]}" if quality.stopped else ""
    rounds = again * bool(quality.repeated_blocks) + rounds
    return f"{quality.blocks} blocks, {turns}{rounds}; {text.count(m.samples)} samples{stopped}"


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
    return shown + (f" (and {counted(more, 'more line')})" if more else "")


def reasons_of(cells: Sequence[CellRecord]) -> tuple[Shared, ...]:
    """Return the reasons of the cells without a counted result, in order of first appearance."""
    found: dict[str, list[CellRecord]] = {}
    for cell in cells:
        if cell.reason is not None and cell.reason.text and has_no_result(cell):
            found.setdefault(cell.reason.text, []).append(cell)
    return tuple(Shared(text, tuple(members)) for text, members in found.items())


def has_no_result(cell: ComparedCell) -> bool:
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
    # There is no digit zero: after z comes aa.
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
    """Return the groups, the largest first; names of tensors and figures make no other reason."""
    found: dict[str, list[Fallback]] = {}
    for one in fallbacks:
        found.setdefault(kind_of(one.reason), []).append(one)
    groups = (_group(members) for members in found.values())
    return tuple(sorted(groups, key=lambda group: -group.count))


def kind_of(reason: str) -> str:
    """Return a reason without names of tensors and figures: equal for two things that fail alike."""
    return _SINGULAR.sub("#", reason)


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
