"""Prints all output: tables, JSON, errors, progress. No other module prints.

Text may hold a stranger's model names: control and direction characters never reach the terminal.
"""

import io
import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from shutil import get_terminal_size
from typing import Any, Literal, TextIO

from orchestrator.cli.verb import OK
from orchestrator.errors import UsageError
from orchestrator.results.format import plain, visible

_COMMAND = re.compile(r"^([^\S\n]*):(?=:)", re.MULTILINE)
"""The beginning of a line that GitHub's runners take for a workflow command, blanks in front or not
(`ActionCommand` of github.com/actions/runner): a stranger's text must give none.
"""


def clean(text: str, *, keep_lines: bool = False) -> str:
    """Make every character visible that moves the cursor, colours, reorders, hides or begins a command."""
    shown = visible(text).replace("\t", " ")
    return _COMMAND.sub(r"\1⟨U+003A⟩", shown if keep_lines else shown.replace("\n", " "))


def tolerate_any_text() -> None:
    """Let a character that the terminal's encoding lacks be shown escaped, not end the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def line(text: str = "") -> None:
    """Print one line of results."""
    print(clean(text, keep_lines=True))


def raw(text: str) -> None:
    """Print a finished document (JSON, CSV, Markdown) unchanged; its writer has escaped it."""
    sys.stdout.write(text)


def binary(content: bytes) -> None:
    """Write a file to standard output. Raises `UsageError` where that is a terminal."""
    if is_terminal(sys.stdout):
        raise UsageError("this form is no text for a terminal: redirect it into a file, with > FILE")
    # What was printed as text must come before these bytes.
    sys.stdout.flush()
    sys.stdout.buffer.write(content)


def emit_json(value: Any) -> None:
    """JSON on standard output; non-ASCII characters are escaped, so nothing hides in it."""
    raw(json.dumps(value, indent=1, allow_nan=False, default=plain) + "\n")


def emit_json_line(value: Any) -> None:
    """One object of a stream on a line of its own, escaped as by `emit_json`."""
    raw(json.dumps(value, default=plain) + "\n")


def answer(value: Any, text: str | Iterable[str], as_json: bool) -> int:
    """Print what a verb did, as JSON or as a line or several; returns the exit code 0."""
    if as_json:
        emit_json(value)
    else:
        for one in (text,) if isinstance(text, str) else text:
            line(one)
    return OK


def note(text: str) -> None:
    """Print one line about progress on standard error."""
    print(clean(text, keep_lines=True), file=sys.stderr, flush=True)


def annotation(kind: Literal["error", "warning"], title: str, text: str) -> None:
    """Print a workflow command, by which GitHub shows a text beside the change that a build is of."""
    # As `escapeData` of GitHub's toolkit. The per cent sign first: those of the other escapes are no text.
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    print(f"::{kind} title={title}::{visible(escaped)}", file=sys.stderr, flush=True)


def error(text: str) -> None:
    """Print why the command ends."""
    note(f"error: {text}")


def failed(text: str, exit_code: int, as_json: bool) -> int:
    """Print an error as JSON where that was asked for; returns the exit code."""
    if as_json:
        emit_json({"error": {"text": text, "exit_code": exit_code}})
    return exit_code


def usage(text: str) -> None:
    """Report a command line that cannot be understood; the help that answers an empty one stays as it is."""
    if text.startswith("Usage:"):
        note(text)
    else:
        error(f"{text} (farm --help lists the verbs, farm VERB --help their options)")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()) -> None:
    """Print a table: drawn on a terminal, aligned with blanks elsewhere. A cell may have several lines.

    `right`: headings of the columns that are aligned to the right.
    """
    cleaned = [[clean(cell, keep_lines=True) for cell in row] for row in rows]
    if is_terminal(sys.stdout):
        _drawn(headings, cleaned, right)
    else:
        for text in aligned(headings, cleaned, right):
            print(text)


def aligned(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()) -> list[str]:
    """Return the lines of a plain table; two blanks between columns."""
    blocks = [[clean(heading) for heading in headings], *rows]
    cells = [[cell.split("\n") for cell in block] for block in blocks]
    widths = [max(len(part) for row in cells for part in row[i]) for i in range(len(headings))]
    several = any(len(cell) > 1 for row in cells for cell in row)
    lines: list[str] = []
    for number, row in enumerate(cells):
        if several and number:
            lines.append("")
        for depth in range(max(len(cell) for cell in row)):
            parts = (cell[depth] if depth < len(cell) else "" for cell in row)
            texts = (
                part.rjust(width) if heading in right else part.ljust(width)
                for part, width, heading in zip(parts, widths, headings, strict=True)
            )
            lines.append("  ".join(texts).rstrip())
    return lines


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a GitHub-flavoured table; a cell's lines are joined with `<br>`."""
    lines = [_row(headings), _row(["---"] * len(headings), escape=False), *(_row(row) for row in rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str], *, escape: bool = True) -> str:
    return "| " + " | ".join(escaped(cell) if escape else cell for cell in cells) + " |"


def escaped(text: str) -> str:
    """Return a text without meaning for Markdown or HTML; its lines are joined with `<br>`."""
    marked = re.sub(r"([\\`*_\[\]<>|~#])", r"\\\1", visible(text).replace("\t", " "))
    # Line breaks come last, so that their own signs stay.
    return marked.replace("&", "&amp;").replace("\n", "<br>")


def is_terminal(stream: TextIO) -> bool:
    """Return True if a person watches and the terminal can redraw a line."""
    return stream.isatty()


_PIPE_COLUMNS = 120
"""Width of what is not written to a terminal and has no COLUMNS. Chosen: what mails and build logs show."""

_LEAST_COLUMNS = 40
"""The least width that a table is drawn for: in fewer columns a name and a figure have no room."""


def width() -> int:
    """Return the columns of standard output: the terminal's own; of a pipe COLUMNS, else 120."""
    stated = os.environ.get("COLUMNS", "")
    columns = int(stated) if stated.isdecimal() else 0
    if is_terminal(sys.stdout):
        with suppress(OSError):
            # A terminal whose size nobody has set states 0 columns.
            columns = os.get_terminal_size(sys.stdout.fileno()).columns or columns
    return max(_LEAST_COLUMNS, columns or _PIPE_COLUMNS)


def _drawn(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str]) -> None:
    # A terminal alone needs these.
    from rich import box  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    drawn = Table(box=box.SIMPLE_HEAD, show_lines=any("\n" in cell for row in rows for cell in row))
    for heading in headings:
        side: Literal["left", "right"] = "right" if heading in right else "left"
        drawn.add_column(Text(clean(heading)), justify=side, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console(markup=False, highlight=False, emoji=False).print(drawn)


class StatusLine:
    """One line at the bottom that is redrawn; finished events scroll by above it.

    Off a terminal the line is not drawn and only the events are printed. Everything goes to standard error.
    """

    def __init__(self) -> None:
        self._live = is_terminal(sys.stderr)
        self._shown = False

    def __enter__(self) -> "StatusLine":
        return self

    def __exit__(self, *_: object) -> None:
        self._erase()

    def event(self, text: str) -> None:
        """Print a line that stays."""
        self._erase()
        note(text)

    def update(self, text: str) -> None:
        """Redraw the line."""
        if not self._live:
            return
        # Asked each time: the terminal may have been resized, and a line that wraps cannot be erased.
        width = max(20, get_terminal_size().columns)
        self._erase()
        # One column stays free: a terminal may wrap at the last one.
        sys.stderr.write(clean(text)[: width - 1])
        sys.stderr.flush()
        self._shown = True

    def _erase(self) -> None:
        if self._shown:
            # To the first column, then erase the whole line (ECMA-48: CR, EL 2).
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._shown = False
