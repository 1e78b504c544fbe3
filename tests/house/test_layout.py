"""Rules on the tree itself: names, sizes, one language per file."""

from __future__ import annotations

import ast
import re

import pytest

from runtime.ops.support.registry import SPECS
from tests.needs import REPOSITORY

PACKAGES = ("orchestrator", "agent", "runtime")
FORBIDDEN_STEMS = {"utils", "util", "helpers", "common", "misc", "manager"}
LONGEST_FILE = 500


def _modules() -> list:
    return [path for package in PACKAGES for path in sorted((REPOSITORY / package).rglob("*.py"))]


@pytest.mark.parametrize("path", _modules(), ids=lambda p: str(p.relative_to(REPOSITORY)))
def test_module_keeps_the_house_rules(path):
    text = path.read_text(encoding="utf-8")
    assert path.stem not in FORBIDDEN_STEMS
    assert text.count("\n") <= LONGEST_FILE, "look for the second purpose"
    assert "__kernel" not in text, "OpenCL C belongs in .cl files"
    if path.name != "__init__.py" or text:
        assert ast.get_docstring(ast.parse(text)), "a module says what it is for"
    assert not re.search(r"\b(TODO|FIXME|XXX)\b", text)


def test_messages_package_root_is_empty():
    assert (REPOSITORY / "agent/__init__.py").read_text() == ""


def test_every_operator_is_named_by_a_test():
    tests = sorted((REPOSITORY / "tests/runtime").rglob("*.py"))
    words = {word for path in tests for word in re.findall(r"[A-Z][A-Z0-9_]+", path.read_text("utf-8"))}
    operators = {opcode.name for opcode in SPECS}
    assert operators <= words, f"without a test: {sorted(operators - words)}"


def test_top_level_holds_the_named_folders_only():
    listed = {p.name for p in REPOSITORY.iterdir() if p.is_dir() and not p.name.startswith(".")}
    assert listed <= {
        *PACKAGES, "templates", "tests", "ansible", "benchmarks", "examples", "docs", "requirements",
    }  # fmt: skip
