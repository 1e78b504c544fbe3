"""The call of a tool: its words, its help, its lines, and its errors: one line, and exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

import typer

from runtime.evaluation.flags import Flag, Flags, parse, usage
from runtime.tools.calls import clear_errors, visible


def write(line: str) -> None:
    """Print a line; tabs stay, which divide the columns of LiteRT's tables."""
    typer.echo("\t".join(map(visible, line.split("\t"))))


def run_tool(
    name: str,
    model_flag: str,
    table: Mapping[str, Flag],
    words: Sequence[str] | None,
    work: Callable[[Flags], int | None],
) -> int:
    """Run a tool on the words of a command line, by default this process's; return its exit code.

    It is that of `work`, 0 where that gives none, and 2 for a wrong call or a file that cannot be used.
    """
    given = list(sys.argv[1:] if words is None else words)
    if not {"--help", "-h", "--help=true"}.isdisjoint(given):
        write(f"usage: {name} --{model_flag}=FILE [--NAME=VALUE…]")
        for line in usage(table):
            write(line)
        return 1 if "--help=true" in given else 0  # as LiteRT's flag ends
    try:
        with clear_errors():
            return work(parse(given, table)) or 0
    except typer.Exit as end:
        return end.exit_code
