"""Rules on the tree itself: names, sizes, one language per file."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from runtime.ops.support.registry import SPECS
from tests.needs import REPOSITORY

PACKAGES = ("orchestrator", "agent", "runtime")
FORBIDDEN_STEMS = {"utils", "util", "helpers", "common", "misc", "manager"}
LONGEST_FILE = 500


def _broken_rules(path: Path) -> list[str]:
    """Return which rules of the house a module breaks."""
    text = path.read_text(encoding="utf-8")
    is_documented = (path.name == "__init__.py" and not text) or ast.get_docstring(ast.parse(text))
    rules = {
        "a stem that says nothing": path.stem in FORBIDDEN_STEMS,
        "longer than a file may be: look for the second purpose": text.count("\n") > LONGEST_FILE,
        "OpenCL C belongs in .cl files": "__kernel" in text,
        "a module says what it is for": not is_documented,
        "a program starts where all of it is defined": re.search(
            r"^if __name__ ==.*\n([ \t].*\n|\n)*\S", text, re.MULTILINE
        )
        is not None,
        "a note to oneself": re.search(r"\b(TODO|FIXME|XXX)\b", text) is not None,
    }
    return [f"{path.relative_to(REPOSITORY)}: {rule}" for rule, is_broken in rules.items() if is_broken]


@pytest.mark.parametrize("package", [*PACKAGES, "delegate_farm"])
def test_modules_keep_the_house_rules(package):
    modules = sorted((REPOSITORY / package).rglob("*.py"))
    assert [broken for path in modules for broken in _broken_rules(path)] == []


def test_messages_package_root_is_empty():
    assert (REPOSITORY / "agent/__init__.py").read_text() == ""


def test_every_operator_is_named_by_a_test():
    tests = sorted((REPOSITORY / "tests/runtime").rglob("*.py"))
    words = {word for path in tests for word in re.findall(r"[A-Z][A-Z0-9_]+", path.read_text("utf-8"))}
    operators = {opcode.name for opcode in SPECS}
    assert operators <= words, f"without a test: {sorted(operators - words)}"


def test_top_level_holds_the_named_folders_only():
    listed = {p.name for p in REPOSITORY.iterdir() if p.is_dir() and not p.name.startswith((".", "__"))}
    assert listed <= {
        *PACKAGES, "delegate_farm", "templates", "tests", "ansible", "benchmarks", "examples", "docs",
        "requirements",
    }  # fmt: skip
