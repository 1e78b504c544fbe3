"""Collects the mistakes in a file with their positions, and raises them together."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import yaml

from orchestrator.errors import UsageError

MAX_REPORTED: Final = 20
"""How many mistakes one message lists. Chosen: about a screen of a terminal. The rest is counted, and appears
once the first ones are corrected."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake; line and column count from 1."""

    line: int
    column: int
    text: str


class ManifestError(UsageError):
    """The error of an unusable file; its text has one `file:line:column: what` per mistake."""

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        self.file = file
        self.problems = tuple(sorted(problems, key=lambda p: (p.line, p.column)))
        shown = [f"{file}:{p.line}:{p.column}: {p.text}" for p in self.problems[:MAX_REPORTED]]
        if len(self.problems) > MAX_REPORTED:
            shown.append(f"{file}: and {len(self.problems) - MAX_REPORTED} mistakes more")
        super().__init__("\n".join(shown))


_SHORTEST_PART = 3
"""Characters from which on a part of a known word counts as meant; a shorter one is in too many."""

_MOST_LISTED, _EXAMPLES = 40, 6
"""Known words that a message lists, and how many it lists of more. Chosen: every key and option of a place,
but not every model of the zoo."""

_MOST_SUGGESTED = 3
"""Words that one suggestion names at most, so that it stays a part of a line."""


class Problems:
    """The mistakes found so far in one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: list[Problem] = []

    def add(self, node: yaml.Node, text: str) -> None:
        """Note a mistake at the place where `node` begins."""
        mark = node.start_mark
        self._found.append(Problem(mark.line + 1, mark.column + 1, text))

    def extend(self, found: Iterable[Problem]) -> None:
        """Note mistakes whose places are known."""
        self._found.extend(found)

    def __bool__(self) -> bool:
        return bool(self._found)

    def raise_any(self) -> None:
        """Raise `ManifestError` where at least one mistake was noted."""
        if self._found:
            raise ManifestError(self.file, self._found)


def suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'models'?` where a known word is close, else the list of known words.

    Words that contain the given one, or are contained in it, are closer than words that merely resemble it.
    """
    words = sorted(known)
    within = [one for one in words if len(word) >= _SHORTEST_PART and (word in one or one in word)]
    close = within[:_MOST_SUGGESTED] or difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    if len(words) > _MOST_LISTED:
        return f"; known: {', '.join(words[:_EXAMPLES])} and {len(words) - _EXAMPLES} more"
    return f"; known: {', '.join(words)}" if words else ""
