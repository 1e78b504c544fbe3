"""The catalogue of mutants: protections picked by hand, and every small change of the functions that decide.

The catalogue is data. `protections/<area>.toml` names one protection per entry: a sentence, the file, the
exact text and what replaces it, and the narrow tests that should notice. Such entries are what an author
thinks of; `functions.toml` therefore names the small functions that decide about signatures, tokens, leases,
addresses and sizes, whose every condition, comparison, statement and number `tests.mutants.syntax` changes.

A general tool (mutmut, cosmic-ray) changes whole modules and runs whole suites. Here a mutant costs the one
or two test files that should notice it, and a protection that is no expression, such as a clause of SQL or a
flag of `open`, can be taken away as well.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.mutants.syntax import mutations
from tests.needs import REPOSITORY

FOLDER: Final = Path(__file__).parent
GENERATED: Final = "every small change"
"""Area of the mutants that are made from the functions of `functions.toml`."""


class StaleError(ValueError):
    """The catalogue names what is not in the source any more."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file. `what`: the protection that is gone, or the change of the syntax.

    `text`: the file's changed content. `equivalent`: why no test can notice it, where none can.
    """

    name: str
    area: str
    what: str
    file: str
    text: str
    tests: tuple[str, ...]
    equivalent: str | None = None

    @property
    def is_generated(self) -> bool:
        """Whether it was made by `tests.mutants.syntax`."""
        return self.area == GENERATED


def mutants() -> list[Mutant]:
    """Return the whole catalogue. Raises `StaleError` naming an entry that the source does not bear out."""
    return [*_picked(), *_generated()]


def _picked() -> Iterator[Mutant]:
    for path in sorted((FOLDER / "protections").glob("*.toml")):
        for entry in tomllib.loads(path.read_text())["mutant"]:
            name = f"{path.stem}/{entry['name']}"
            text, tests = _replaced(name, entry), tuple(entry["tests"])
            reason = entry.get("equivalent")
            yield Mutant(name, path.stem, entry["protection"], entry["file"], text, tests, reason)


def _replaced(name: str, entry: dict[str, Any]) -> str:
    source = _source(entry["file"])
    found = source.count(entry["old"])
    if found != 1:
        raise StaleError(f"{name}: the text to replace is {found} times in {entry['file']}, not once")
    return source.replace(entry["old"], entry["new"])


def _generated() -> Iterator[Mutant]:
    for target in tomllib.loads((FOLDER / "functions.toml").read_text())["target"]:
        file, equivalent = target["file"], dict(target.get("equivalent", {}))
        for function in target["functions"]:
            try:
                changes = list(mutations(_source(file), function))
            except LookupError as error:
                raise StaleError(f"{file} has no function {function}") from error
            for what, text in changes:
                name = f"{file}::{function}: {what}"
                reason = equivalent.pop(f"{function}: {what}", None)
                yield Mutant(name, GENERATED, what, file, text, tuple(target["tests"]), reason)
        if equivalent:
            raise StaleError(f"{file}: no such change is made any more: {', '.join(equivalent)}")


@cache
def _source(file: str) -> str:
    return (REPOSITORY / file).read_text(encoding="utf-8")
