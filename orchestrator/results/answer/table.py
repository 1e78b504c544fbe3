"""The answer as plain values, independent of the width in which it will be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Entry:
    """One delegate on one model: sign, time and ratio, or a `word` in place of them.

    `more` are its further columns by heading; a column that no entry has is not drawn.
    """

    sign: str = ""
    time: str = ""
    ratio: str = ""
    word: str = ""
    more: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Column:
    """A delegate with its heading and the geometric mean of its ratios; an entry for each model or None."""

    heading: str
    entries: tuple[Entry | None, ...]
    mean: str = ""


@dataclass(frozen=True, slots=True)
class Title:
    """The first line: whose results they are, what of them may be left out, and how many are right."""

    name: str
    about: tuple[str, ...]
    right: str

    @property
    def text(self) -> str:
        """The whole of it but the count."""
        return f"{self.name}  {' · '.join(self.about)}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A table with what stands around it.

    `sentences` stand above, each as clauses of which the last may be left out; `further` are the headings of
    `Entry.more`, the most important first; `legend` explains the signs that occur; `notes` are footnotes.
    """

    title: Title
    models: tuple[str, ...]
    columns: tuple[Column, ...]
    sentences: tuple[tuple[str, ...], ...] = ()
    further: tuple[str, ...] = ()
    legend: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def mean_heading(self) -> str:
        """The heading of the row of means; empty where there is none."""
        return "geometric mean" if any(column.mean for column in self.columns) else ""

    def headings(self, column: Column) -> Sequence[str]:
        """Return the further headings under which any entry of a column has something."""
        return [
            name for name in self.further if any(e is not None and e.more.get(name) for e in column.entries)
        ]
