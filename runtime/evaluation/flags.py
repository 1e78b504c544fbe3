"""LiteRT's flags, `--name=value` strictly, and the call of a tool by them.

The flags themselves are data beside this module. An error is one line, with exit code 2.
"""

import difflib
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import typer

from runtime.errors import FarmRuntimeError
from runtime.tools.calls import clear_errors, visible

Value = bool | int | float | str

BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}
"""LiteRT's only forms of a boolean."""

_TABLE: Final = Path(__file__).with_name("benchmark_model_flags.txt")
_ALWAYS: Final = ("verbose", "graph", "signature_to_run_for")
"""Flags whose values are echoed though nobody set them."""

_COLUMNS: Final = 5
"""Columns of the table: name, type, default, use, label."""


class FlagError(FarmRuntimeError, ValueError):
    """A word of the command line cannot be used; the text says which and what to write instead."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. `use` is `used`, `accepted` (it has no effect) or the reason for refusing other values."""

    name: str
    type: str
    default: Value
    use: str
    label: str


@dataclass(frozen=True, slots=True)
class Flags:
    """The values of all flags; `explicit` are the names on the command line, in their order."""

    values: Mapping[str, Value]
    explicit: tuple[str, ...]

    def text(self, name: str) -> str:
        """Return a flag of type string."""
        return str(self.values[name])

    def number(self, name: str) -> float:
        """Return a flag of type int or float."""
        return float(self.values[name])

    def integer(self, name: str) -> int:
        """Return a flag of type int."""
        return int(self.values[name])

    def is_set(self, name: str) -> bool:
        """Return a flag of type bool."""
        return bool(self.values[name])


def flag_table(path: Path) -> Mapping[str, Flag]:
    """Read a table of flags. Raises `ValueError` for a line that is no row."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != _COLUMNS:
            raise ValueError(f"{path}: not a row of {_COLUMNS} cells: {line!r}")
        name, kind, default, use, label = cells
        found[name] = Flag(name, kind, _value(name, kind, default), use, label)
    return found


@cache
def benchmark_flags() -> Mapping[str, Flag]:
    """Return the flags of `benchmark_model`, in the order in which they are echoed."""
    return flag_table(_TABLE)


def parse(words: Sequence[str], table: Mapping[str, Flag]) -> Flags:
    """Return the values of all flags of the table; the last of equal flags wins, as in LiteRT.

    Raises `FlagError` for a word of another form, an unknown flag (with the nearest known one), a value of
    another type, and a value whose effect does not exist here.
    """
    values = {name: flag.default for name, flag in table.items()}
    explicit: dict[str, None] = {}
    for word in words:
        name, equals, text = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            raise FlagError(f"{word!r} is not of the form --NAME=VALUE")
        flag = table.get(name)
        if flag is None:
            near = difflib.get_close_matches(name, table, n=1)
            raise FlagError(f"no flag --{name}" + (f"; did you mean --{near[0]}?" if near else ""))
        if not equals:
            raise FlagError(f"--{name} needs a value: --{name}={'true' if flag.type == 'bool' else 'VALUE'}")
        value = _value(name, flag.type, text)
        # Scripts that state a default ask for nothing that is missing here.
        if flag.use not in {"used", "accepted"} and value != flag.default:
            raise FlagError(f"--{name}={text} is not offered: {flag.use}")
        values[name] = value
        # Removed first, so that a flag that is given twice has the place of the last one.
        explicit.pop(name, None)
        explicit[name] = None
    return Flags(values, tuple(explicit))


def echo(flags: Flags, table: Mapping[str, Flag]) -> Iterator[str]:
    """Yield `Label: [value]` for each explicit flag, all with `verbose`, whose own line comes first.

    The model and its signature are always told, as in LiteRT.
    """
    for name, flag in table.items():
        if name in _ALWAYS or flags.is_set("verbose") or name in flags.explicit:
            value = flags.values[name]
            shown = int(value) if isinstance(value, bool) else value
            yield f"{flag.label}: [{shown:g}]" if isinstance(shown, float) else f"{flag.label}: [{shown}]"


def usage(table: Mapping[str, Flag]) -> Iterator[str]:
    """Yield a line for each flag."""
    for flag in table.values():
        default = str(flag.default).lower() if isinstance(flag.default, bool) else flag.default
        note = (
            "" if flag.use == "used" else " (no effect here)" if flag.use == "accepted" else f" ({flag.use})"
        )
        yield f"  --{flag.name}={default}\t{flag.type}\t{flag.label}{note}"


def _value(name: str, kind: str, text: str) -> Value:
    if kind == "bool":
        if text not in BOOLEANS:
            raise FlagError(f"--{name}={text}: a boolean is one of true, false, 1 and 0")
        return BOOLEANS[text]
    try:
        if kind == "int":
            return int(text)
        if kind == "float":
            number = float(text)
            if math.isfinite(number):
                return number
            raise ValueError(text)
    except ValueError as error:
        raise FlagError(f"--{name}={text}: not a number of type {kind}") from error
    return text


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
