"""The commands of the manual: where they stand, and what a test makes of their placeholders."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import typer
from typer.exceptions import TyperException

import agent.cli
import orchestrator.cli
from tests.needs import REPOSITORY

PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    *sorted(f"docs/{p.name}" for p in (REPOSITORY / "docs").glob("*.md")),
)

OURS = ("farm", "farm-agent")
OTHERS = (
    "make", "pip", "python", "pytest", "apt-get", "redis-server", "openssl", "createuser", "createdb",
    "pg_restore", "systemd-analyze", "printf", "umask", "read", "sudo", "export",
)  # fmt: skip
"""Programs of others that the manual has people call. A line of a block that begins with no program is none
of a command: settings, listings, text."""

_SPAN = re.compile(r"`([^`]+)`")
_BEFORE = re.compile(r"^(?:[a-z0-9-]+\$ )?((?:[A-Z_]+=\S+ +)*)(?:\.venv/bin/)?")
_COMMENT = re.compile(r"\s+#\s.*$")
_COLUMNS = "   "
"""So many blanks stand between the columns of a figure, never within a command."""
_OPTIONAL = re.compile(r"\s*\[[^\[\]]*\](?:\.\.\.)?")


@dataclass(frozen=True)
class Command:
    """A command as it stands on a page; `is_block` where it stands in a block of code, not in a sentence."""

    page: str
    text: str
    is_block: bool

    @property
    def words(self) -> list[str]:
        """Its words without what is optional, and without another program behind it."""
        return shlex.split(_OPTIONAL.sub("", self.text).partition(" | ")[0])

    def __str__(self) -> str:
        return self.text


def commands() -> Iterator[Command]:
    """Every command of the manual once, in the order of the pages."""
    seen: set[str] = set()
    for page in PAGES:
        for command in _commands_of(page):
            if command.text not in seen:
                seen.add(command.text)
                yield command


def _commands_of(page: str) -> Iterator[Command]:
    language: str | None = None
    sentences: list[str] = []
    for line in (REPOSITORY / page).read_text(encoding="utf-8").splitlines():
        stripped = line.strip()
        if stripped.startswith("```"):
            language = stripped[3:] if language is None else None
        elif language in ("", "sh") or (language is None and line.startswith("    ")):
            text = _command(stripped)
            if text:
                yield Command(page, text, is_block=True)
            elif language is None:
                sentences.append(stripped)
        elif language is None:
            sentences.append(stripped)
    for span in _SPAN.findall(" ".join(sentences)):
        text = _command(span)
        if " " in text:
            yield Command(page, text, is_block=False)


def _command(line: str) -> str:
    """Strip a line of prompt, comment and folder of its program; empty if it is no command."""
    line = _COMMENT.sub("", line)
    begun = _BEFORE.match(line)
    assert begun is not None
    rest = line[begun.end() :]
    if _COLUMNS in rest or rest.split(" ")[0] not in (*OURS, *OTHERS):
        return ""
    return begun[1] + rest


@dataclass(frozen=True)
class Verb:
    """A command as the parser of `farm` or `farm-agent` knows it: the verb, and the words behind it."""

    path: str
    parser: Any
    arguments: list[str]

    @property
    def is_group(self) -> bool:
        return hasattr(self.parser, "commands")

    def is_whole(self) -> bool:
        """Whether its parser accepts it as it stands."""
        try:
            self.parser.make_context(self.path, list(self.arguments))
        except TyperException:
            return False
        return True

    @property
    def takes_arguments(self) -> bool:
        return any(parameter.param_type_name == "argument" for parameter in self.parser.params)

    def unknown_options(self) -> list[str]:
        known = {
            name for parameter in self.parser.params for name in (*parameter.opts, *parameter.secondary_opts)
        }
        asked = [word for word in self.arguments if word.startswith("-") and not word.lstrip("-").isdigit()]
        if "--" in asked:
            asked = asked[: asked.index("--")]
        return sorted(set(asked) - known - {"--help", "-h"})


def verb_of(words: list[str]) -> Verb:
    """Find the verb of a command of ours. Raises `KeyError` with the word that is none."""
    parser = _parser(words[0])
    path, rest = words[:1], words[1:]
    while rest and hasattr(parser, "commands") and not rest[0].startswith("-"):
        parser = parser.commands[rest[0]]
        parser = parser.load() if isinstance(parser, orchestrator.cli.Later) else parser
        path.append(rest.pop(0))
    return Verb(" ".join(path), parser, rest)


@cache
def _parser(program: str) -> Any:
    """Return the parser of `farm` or `farm-agent`, which takes long to make."""
    return orchestrator.cli.parser() if program == "farm" else typer.main.get_command(agent.cli.app)
