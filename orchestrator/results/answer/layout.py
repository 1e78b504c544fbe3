"""Lays an answer out in lines of a given width: one line a model, and nothing is wrapped.

A wider terminal gets more columns, never more lines. What does not fit is left out in this order: further
columns, the ends of headings, the middle of models' names, delegates from the right.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from orchestrator.results.answer.entries import Answer, Column, Entry, Title
from orchestrator.results.format import counted

_MARKS = {"Mn", "Me", "Cf"}
"""Categories of characters that are drawn over the one before, or not at all."""

CUT = "…"


def width(text: str) -> int:
    """Return the columns that a text takes; an ideograph or an emoji takes two."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in _MARKS:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut_middle(text: str, limit: int) -> str:
    """Return a text in at most `limit` columns; of a longer one the middle is left out.

    A third of what is kept is its end, where the variants of one model differ.
    """
    if width(text) <= limit:
        return text
    tail = _first(text[::-1], (limit - 1) // 3)[::-1]
    # `CUT[:limit]`: in no columns there is no room for the sign either.
    return _first(text, limit - 1 - width(tail)) + CUT[:limit] + tail


def cut_end(text: str, limit: int) -> str:
    """Return a text in at most `limit` columns; of a longer one the end is left out."""
    return text if width(text) <= limit else _first(text, limit - 1).rstrip() + CUT[:limit]


def _first(text: str, limit: int) -> str:
    """Return as many of the first characters as `limit` columns hold."""
    taken = 0
    for index, character in enumerate(text):
        taken += _columns(character)
        if taken > limit:
            return text[:index]
    return text


def left(text: str, columns: int) -> str:
    """Pad a text with blanks behind it."""
    return text + " " * (columns - width(text))


def right(text: str, columns: int) -> str:
    """Pad a text with blanks before it."""
    return " " * (columns - width(text)) + text


_GAP = "   "
"""Between the groups of two delegates; within a group there are two blanks at most."""

_NAME, _SHORT_NAME = 18, 12
"""Columns that a model's name keeps, if it has them: beside whole headings and further columns, and before a
delegate is left out. Chosen: the names of published models differ within as many."""

_WIDE = 100
"""Width from which on names and headings are cut for further columns; below, whole ones are worth more."""

_CUT_FOR = 4
"""So many of the further columns are worth it: uncertainty, operators, cold and warm start."""

_SHORT_DEVICE = 12
"""Columns that each part of the first line keeps, if it has them."""

_STEP = 10
"""The advised width is rounded up to a multiple of it, so that it is easy to type."""


def lines(answer: Answer, columns: int) -> list[str]:
    """Return the lines of an answer, none of them wider than `columns`."""
    drawn = _fitted(answer, columns)
    left_out = len(answer.columns) - len(drawn.groups)
    legend = answer.legend
    if left_out:
        legend = (*legend, f"+{counted(left_out, 'column')}: COLUMNS={_wide_enough(answer)} or -v")
    head = [_first_line(answer.title, columns), *(_sentence(one, columns) for one in answer.sentences)]
    foot = [*_flowing(legend, columns), *(cut_end(note, columns) for note in answer.notes)]
    body = [""] + [cut_end(line, columns) for line in drawn.lines()] if answer.models else []
    return [line.rstrip() for line in (*head, *body, *foot)]


def _first_line(title: Title, columns: int) -> str:
    """Write the title with the count at the right end.

    The longest part is cut until it fits; where that is not enough, the last parts are left out.
    """
    room = columns - width(title.right) - len(_GAP)
    parts = [title.name, *title.about]
    # It ends: each turn shortens the longest part or drops one, and a single short part stops it.
    while (over := width(Title(parts[0], tuple(parts[1:]), "").text) - room) > 0:
        longest = max(range(len(parts)), key=lambda index: width(parts[index]))
        had = width(parts[longest])
        if had <= _SHORT_DEVICE and len(parts) > 1:
            parts.pop()
            continue
        if had <= _SHORT_DEVICE:
            break
        parts[longest] = cut_middle(parts[longest], max(_SHORT_DEVICE, had - over))
    text = cut_end(Title(parts[0], tuple(parts[1:]), "").text, max(room, 1))
    return cut_end(f"{left(text, room)}{_GAP}{title.right}", columns)


def _sentence(clauses: Sequence[str], columns: int) -> str:
    """Write as many clauses as fit, at least the first one."""
    whole = [f"{text}." for text in accumulate(clauses)]
    fitting = [text for text in whole if width(text) <= columns]
    return fitting[-1] if fitting else cut_end(whole[0], columns)


def _flowing(parts: Sequence[str], columns: int) -> Iterator[str]:
    """Write parts behind each other, as many to a line as fit."""
    line = ""
    for part in parts:
        if line and width(line) + 2 + width(part) > columns:
            yield line
            line = ""
        line = cut_end(f"{line}  {part}" if line else part, columns)
    if line:
        yield line


@dataclass(frozen=True, slots=True)
class _Group:
    """The columns of a delegate: widths of sign, time and ratio, and of each further column."""

    column: Column
    sign: int
    time: int
    ratio: int
    least: int
    further: dict[str, int]

    @classmethod
    def of(cls, column: Column, further: Sequence[str]) -> "_Group":
        entries = [entry for entry in column.entries if entry is not None]
        sign, time, ratio = (
            max((width(getattr(entry, name)) for entry in entries), default=0)
            for name in ("sign", "time", "ratio")
        )
        words = [*(width(entry.word) for entry in entries), width(column.mean)]
        least = max(_joined(sign, time, ratio), *words)
        widths = {
            name: max(width(name), *(width(entry.more.get(name, "")) for entry in entries))
            for name in further
        }
        return cls(column, sign, time, ratio, least, widths)

    def only(self, further: Sequence[str]) -> "_Group":
        """Return the group with only these of its further columns."""
        return replace(self, further={name: self.further[name] for name in further if name in self.further})

    def width(self, heading: int) -> int:
        """Columns of the whole group with a heading of at most so many."""
        return self.figures(heading) + sum(len(_before(name)) + wide for name, wide in self.further.items())

    def figures(self, heading: int) -> int:
        """Columns of sign, time and ratio below a heading of at most so many."""
        return max(self.least, min(width(self.column.heading), heading))

    def head(self, heading: int) -> str:
        """Write the headings."""
        wide = self.figures(heading)
        own = left(cut_end(self.column.heading, wide), wide)
        return own + "".join(f"{_before(name)}{right(name, wide)}" for name, wide in self.further.items())

    def row(self, entry: Entry | None, heading: int) -> str:
        """Write one entry."""
        entry = Entry() if entry is None else entry
        text = left(entry.word or self._figures(entry), self.figures(heading))
        more = (f"{_before(name)}{right(entry.more.get(name, ''), w)}" for name, w in self.further.items())
        return text + "".join(more)

    def mean(self, heading: int) -> str:
        """Write the mean below the ratios."""
        wide = _joined(self.sign, self.time, self.ratio)
        return left(right(self.column.mean, max(wide, width(self.column.mean))), self.width(heading))

    def _figures(self, entry: Entry) -> str:
        sign = f"{left(entry.sign, self.sign)} " if self.sign else ""
        ratio = f"  {right(entry.ratio, self.ratio)}" if self.ratio else ""
        return f"{sign}{right(entry.time, self.time)}{ratio}"


def _before(name: str) -> str:
    """Return the gap before a further column: an uncertainty stands close to its figure."""
    return " " if name == "±" else "  "


def _joined(sign: int, time: int, ratio: int) -> int:
    return (sign + 1 if sign else 0) + time + (2 + ratio if ratio else 0)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The groups that are drawn, the columns of the names, and those that a heading may have."""

    answer: Answer
    groups: tuple[_Group, ...]
    name: int
    heading: int

    def lines(self) -> Iterator[str]:
        """Write headings, models and means."""
        yield self._line("model", [group.head(self.heading) for group in self.groups])
        for index, model in enumerate(self.answer.models):
            entries = [group.row(group.column.entries[index], self.heading) for group in self.groups]
            yield self._line(cut_middle(model, self.name), entries)
        if self.answer.mean_heading:
            yield self._line(self.answer.mean_heading, [group.mean(self.heading) for group in self.groups])

    def _line(self, name: str, parts: Sequence[str]) -> str:
        return _GAP.join((left(cut_end(name, self.name), self.name), *parts))


def _fitted(answer: Answer, columns: int) -> _Drawn:
    """Choose delegates, further columns and widths so that a row fits."""
    whole = [_Group.of(column, answer.headings(column)) for column in answer.columns]
    natural = max(map(width, (*answer.models, "model", answer.mean_heading)))
    for count in range(len(whole), 0, -1):
        shown = whole[:count]
        # Whole headings, cut ones, then shorter names of models, too; only then is a delegate left out.
        for heading, least in ((columns, _NAME), (0, _NAME), (0, _SHORT_NAME)):
            if _needed(shown, (), heading) + min(natural, least) <= columns:
                # Delegates that do not fit are worth more than further columns of the others.
                further = _further(answer, shown, columns, natural) if count == len(whole) else ()
                # Further columns may have cost the headings their ends, or left room for them.
                whole_too = further and _needed(shown, further, columns) + min(natural, _NAME) <= columns
                kept = columns if whole_too else 0 if further else heading
                return _drawn(answer, shown, further, columns, kept, natural)
    # Too narrow even for one delegate: `lines` cuts the ends of its rows.
    return _drawn(answer, whole[:1], (), columns, 0, natural)


def _drawn(
    answer: Answer, shown: Sequence[_Group], further: Sequence[str], columns: int, heading: int, natural: int
) -> _Drawn:
    room = columns - _needed(shown, further, heading)
    groups = tuple(group.only(further) for group in shown)
    return _Drawn(answer, groups, max(1, min(natural, room)), heading)


def _further(answer: Answer, shown: Sequence[_Group], columns: int, natural: int) -> tuple[str, ...]:
    """Return as many of the further columns as fit, in their order."""
    taken: tuple[str, ...] = ()
    for place, more in enumerate(answer.further):
        cut = columns >= _WIDE and place < _CUT_FOR
        heading, name = (0, min(natural, _NAME)) if cut else (columns, natural)
        if _needed(shown, (*taken, more), heading) + name > columns:
            break
        taken = (*taken, more)
    return taken


def _needed(shown: Sequence[_Group], further: Sequence[str], heading: int) -> int:
    return sum(len(_GAP) + group.only(further).width(heading) for group in shown)


def _wide_enough(answer: Answer) -> int:
    """Return the least round width in which no delegate is left out."""
    whole = [_Group.of(column, ()) for column in answer.columns]
    needed = _needed(whole, (), 0) + _SHORT_NAME
    return -(-needed // _STEP) * _STEP
