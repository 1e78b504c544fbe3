"""Options that several verbs on model files share, and their errors: one line, and exit code 2."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

if TYPE_CHECKING:
    from runtime.measure.inputs import InputRule

USAGE: Final = 2
"""Exit code for a wrong call or a file that cannot be used, the same as Click's and the farm's."""

SignatureKey = Annotated[
    str | None,
    typer.Option(
        "--signature", metavar="KEY", help="Take this signature's graph; by default the first graph."
    ),
]
"""The option by which a verb takes another graph of the file than the first one."""


def rules_of(ranges: list[str], shapes: list[str]) -> dict[str, InputRule]:
    """Return `--input` and `--shape` as the rules of a measurement's inputs."""
    from runtime.measure.inputs import InputRule

    found: dict[str, InputRule] = {}
    for text in ranges:
        name, _, bounds = text.rpartition("=")
        match = re.fullmatch(r"(-?[\d.]+)\.\.(-?[\d.]+)", bounds)
        low, high = (_number(match[1]), _number(match[2])) if match else (None, None)
        if not name or low is None or high is None or low > high:
            refuse(f"--input {text!r} is not of the form NAME=LOW..HIGH, as ids=0..999")
        found[name] = InputRule(low=low, high=high)
    for text in shapes:
        name, _, sizes = text.rpartition("=")
        if not name or not re.fullmatch(r"\d{1,9}(,\d{1,9})*", sizes):
            refuse(f"--shape {text!r} is not of the form NAME=N,N,..., as image=1,224,224,3")
        extents = tuple(int(size) for size in sizes.split(","))
        found[name] = replace(found.get(name, InputRule()), shape=extents)
    return found


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def options_of(given: list[str], threads: int | None) -> dict[str, str | int]:
    """Return `NAME=VALUE` as a mapping; its delegate checks the values."""
    found: dict[str, str | int] = {} if threads is None else {"threads": threads}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            refuse(f"--option {text!r} is not of the form NAME=VALUE")
        if name in found:
            refuse(f"the option {name!r} is given twice")
        found[name] = value
    return found


def refuse(text: str) -> NoReturn:
    """End a wrong call with one line."""
    typer.echo(f"error: {visible(text)}", err=True)
    raise typer.Exit(USAGE)


def visible(text: str) -> str:
    """Escape what is not printable, so that a name in a file cannot move the cursor."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@contextmanager
def clear_errors(file: Path | None = None) -> Iterator[None]:
    """Print an expected error as one line with the file's name, and exit with code 2."""
    from runtime.errors import FarmRuntimeError

    try:
        yield
    except OSError as error:
        typer.echo(f"error: {visible(str(error.filename))}: {error.strerror}", err=True)
        raise typer.Exit(USAGE) from error
    except FarmRuntimeError as error:
        text = str(error)
        # Most errors of the reader name the file; those about bytes in memory cannot.
        where = "" if file is None or text.startswith(str(file)) else f"{file}: "
        typer.echo(f"error: {visible(where + text)}", err=True)
        raise typer.Exit(USAGE) from error
