"""Builds the wheel (PEP 517): everything that it installs lies below the one name `delegate_farm`.

A clone has the packages of `MOVED` at its top level, under names that other projects use too. `build_wheel`
takes the wheel that hatchling makes of them, moves them into the package `delegate_farm`, and puts its name
in front of every import, string and entry point that names one of their modules. Editable installs and source
distributions are hatchling's own.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import io
import re
import tokenize
import zipfile
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import hatchling.build
from hatchling.build import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]

ROOF: Final = "delegate_farm"
MOVED: Final = ("agent", "orchestrator", "runtime", "templates")

_NAME: Final = rf"(?:{'|'.join(MOVED)})"
_QUOTED: Final = re.compile(rf"""[rRuU]?["'](?P<name>{_NAME}(?:\.\w+)*)(?::\w+)?["']""")
"""A string that is nothing but the name of a module, or of one of its attributes as an entry point has it."""
_BARE: Final = re.compile(
    r"""(?:["']-m["'],|\b(?:files|import_module|getLogger|PackageLoader)\(|\bloggers=\()\s*$"""
)
"""What stands before a string that names a whole package: `agent` alone is also a word."""
_COMMAND: Final = re.compile(rf"-m (?={_NAME}\b)")
"""A command line inside a longer text."""
_MADE: Final = re.compile(rf"""["'](?P<name>{_NAME}(?:\.\w+)+)\.[{{%"']""")
"""The name of a module that only running completes."""
_MADE_THERE: Final = re.compile(
    rf"""\b(?:files|import_module|find_spec|__import__)\(\s*[rRuUfF]*["'](?P<name>{_NAME})"""
    r"""\.(?:[\w.]*[{%]|(?:\w+\.)*["'])"""
)
"""The same where a module is expected: elsewhere `agent.` begins the name of a queue, too."""
_STRINGS: Final = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
_LONGEST_BEFORE: Final = 80
"""Characters before a string in which `_BARE` looks; a line of this tree has at most 110."""


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Write the wheel into a folder and return its name. Raises ValueError for a name that cannot move."""
    name: str = hatchling.build.build_wheel(wheel_directory, config_settings, metadata_directory)
    path = Path(wheel_directory, name)
    with zipfile.ZipFile(path) as wheel:
        members = [(member, wheel.read(member)) for member in wheel.infolist()]
    modules = {module for member, _ in members for module in _modules(member.filename)}
    record: list[str] = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        # RECORD is the last member of every wheel, so that all others are listed when its turn comes.
        for member, content in members:
            moved = _moved(member.filename, content, modules)
            if member.filename.endswith(".dist-info/RECORD"):
                moved = "".join([*record, f"{member.filename},,\n"]).encode()
            member.filename = _place(member.filename)
            digest = base64.urlsafe_b64encode(hashlib.sha256(moved).digest()).rstrip(b"=").decode()
            record.append(f"{member.filename},sha256={digest},{len(moved)}\n")
            wheel.writestr(member, moved)
    return name


def _place(member: str) -> str:
    return f"{ROOF}/{member}" if member.partition("/")[0] in MOVED else member


def _modules(member: str) -> Iterator[str]:
    """Yield the module that a file is, and the packages that it lies in."""
    parts = Path(member).with_suffix("").parts
    if member.endswith(".py") and parts[0] in MOVED:
        yield from accumulate(parts, "{}.{}".format)


def _moved(member: str, content: bytes, modules: set[str]) -> bytes:
    if member.endswith(".dist-info/entry_points.txt"):
        return re.sub(rf"(?m)^(.+? = )(?={_NAME}\b)", rf"\1{ROOF}.", content.decode()).encode()
    if member.endswith(".py"):
        return rewritten(content.decode(), modules, member).encode()
    return content


def rewritten(source: str, modules: set[str], where: str = "<source>") -> str:
    """Return a module's source with `delegate_farm.` in front of the names of `modules`.

    `where` names the file in errors. Raises ValueError for an import that binds the name of a package for the
    use of what lies in it (`import runtime.model`), of which only its uses would show what to rewrite, and
    for the name of a module that is put together from one of `modules`.
    """
    for made in (*_MADE.finditer(source), *_MADE_THERE.finditer(source)):
        if made["name"] in modules:
            line = source.count("\n", 0, made.start("name")) + 1
            raise ValueError(f"{where}:{line}: put the name together from `__package__` or `__name__`")
    rows = io.StringIO(source).readlines()
    starts = [0, *accumulate(map(len, rows))]
    insertions = {**_imports(source, starts, where), **_names(source, starts, modules)}
    for place in sorted(insertions, reverse=True):
        source = source[:place] + insertions[place] + source[place:]
    return source


def _imports(source: str, starts: list[int], where: str) -> dict[int, str]:
    """Return what the imports need: offset in the source → text to insert there."""
    found: dict[int, str] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and _is_moved(node.module or ""):
            start = starts[node.lineno - 1] + node.col_offset
            found[source.index(node.module or "", start + len("from"))] = f"{ROOF}."
        elif isinstance(node, ast.Import) and any(_is_moved(alias.name) for alias in node.names):
            alias = node.names[0]
            if len(node.names) > 1 or ("." in alias.name and alias.asname is None):
                raise ValueError(f"{where}:{node.lineno}: import it as `from PACKAGE import MODULE`")
            if "." in alias.name:
                found[starts[alias.lineno - 1] + alias.col_offset] = f"{ROOF}."
            else:
                found[starts[node.lineno - 1] + node.col_offset] = f"from {ROOF} "
    return found


def _is_moved(module: str) -> bool:
    return module.partition(".")[0] in MOVED


def _names(source: str, starts: list[int], modules: set[str]) -> dict[int, str]:
    """Return what strings need, and the command lines in texts, as `_imports` does."""
    found: dict[int, str] = {}
    # Tokens take most of the build's time, and few modules have such a string.
    if not (_QUOTED.search(source) or _COMMAND.search(source)):
        return found
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _STRINGS:
            continue
        start, end = (starts[row - 1] + column for row, column in (token.start, token.end))
        if named := _QUOTED.fullmatch(source, start, end):
            name = named["name"]
            is_module = "." in name or _BARE.search(source[max(0, start - _LONGEST_BEFORE) : start])
            if is_module and name in modules:
                found[named.start("name")] = f"{ROOF}."
        for command in _COMMAND.finditer(source, start, end):
            found[command.end()] = f"{ROOF}."
    return found
