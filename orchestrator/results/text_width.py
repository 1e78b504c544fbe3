"""Counts the columns of a terminal that a text takes, and cuts or pads it to so many."""

from __future__ import annotations

import unicodedata

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
