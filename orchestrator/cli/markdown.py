"""Writes tables as Markdown, with pipes, tags and emphasis of foreign text escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from orchestrator.results.format import visible


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A GitHub-flavoured table; a cell's lines are joined with `<br>`."""
    lines = [_row(headings), _row(["---"] * len(headings), escape=False), *(_row(row) for row in rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str], *, escape: bool = True) -> str:
    return "| " + " | ".join(escaped(cell) if escape else cell for cell in cells) + " |"


def escaped(text: str) -> str:
    """A text without meaning for Markdown or HTML; its lines are joined with `<br>`."""
    marked = re.sub(r"([\\`*_\[\]<>|~#])", r"\\\1", visible(text).replace("\t", " "))
    return marked.replace("&", "&amp;").replace("\n", "<br>")
