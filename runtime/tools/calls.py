"""Options that several verbs on model files share, and their errors: one line, and exit code 2."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

if TYPE_CHECKING:
    from runtime.measure.inputs import InputRule

USAGE: Final = 2
"""Exit code for a wrong call or a file that cannot be used, the same as Click's and the farm's."""

_PROGRESS_S: Final = 5.0
"""Seconds between two lines of progress. Chosen: rarer, and a long run looks dead."""

ModelFile = Annotated[Path, typer.Argument(help="A .tflite or .skel file.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="An option of the delegate; repeatable."),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="NAME=LOW..HIGH", help="Values of an input; repeatable."),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="NAME=N,N,...", help="The shape of an input; repeatable."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

SignatureKey = Annotated[
    str | None,
    typer.Option(
        "--signature", metavar="KEY", help="Take this signature's graph; by default the first graph."
    ),
]
"""The option by which a verb takes another graph of the file than the first one."""


def answer(document: Any, lines: Iterable[str], as_json: bool) -> int:
    """Print a document as JSON, or its lines for people; returns the exit code of success."""
    for line in [json.dumps(document, indent=1)] if as_json else map(visible, lines):
        typer.echo(line)
    return 0


def progress() -> Callable[[str], None]:
    """Return what prints how far a long call is, now and then."""
    last_s = time.monotonic()

    def say(text: str) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= _PROGRESS_S:
            last_s = time.monotonic()
            typer.echo(visible(text), err=True)

    return say


def rules_of(ranges: list[str], shapes: list[str]) -> dict[str, InputRule]:
    """Return `--input` and `--shape` as the rules of a measurement's inputs."""
    from runtime.measure.inputs import InputRule

    found: dict[str, InputRule] = {}
    for text in ranges:
        # From the right, since the name of an input may contain "=".
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


def delegate_of(text: str) -> tuple[str, dict[str, str | int]]:
    """Return `DELEGATE:NAME=VALUE,...` as the delegate's name and its options."""
    name, _, options = text.partition(":")
    return name, options_of([part for part in options.split(",") if part], None)


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
        refuse(f"{error.filename}: {error.strerror}")
    except FarmRuntimeError as error:
        text = str(error)
        # Most errors of the reader name the file; those about bytes in memory cannot.
        refuse(text if file is None or text.startswith(str(file)) else f"{file}: {text}")
