"""Numbers say what they are, and docstrings are sentences."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise, zip_longest
from pathlib import Path

import pytest

from tests.needs import REPOSITORY

PACKAGES = ("orchestrator", "agent", "runtime")
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
ARITHMETIC = (
    ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Tuple, ast.Dict, ast.List, ast.Name,
    ast.Load,
)  # fmt: skip
"""What a numeric constant may be made of: literals, arithmetic, collections of them, other constants."""

CLAUSE = re.compile(r"\W*(What|Which|None|Where|How|Those|As|Whose)\b")
"""First words of noun clauses, which say something of a thing that the reader does not know yet."""
TEXT_WITH_CLAUSE = re.compile(rf"[\"']{CLAUSE.pattern}")
"""The beginning of any text with such a word. A file without one need not be parsed."""


def modules(package: str) -> list[Path]:
    """Every module but the migrations, which are history."""
    return [path for path in sorted((REPOSITORY / package).rglob("*.py")) if "versions" not in path.parts]


def is_numeric(value: ast.expr) -> bool:
    """Return True if the value is arithmetic over numbers alone."""
    nodes = list(ast.walk(value))
    literals = [node.value for node in nodes if isinstance(node, ast.Constant)]
    return (
        all(isinstance(node, ARITHMETIC) for node in nodes)
        and any(type(literal) in (int, float) for literal in literals)
        and not any(isinstance(literal, str) for literal in literals)
    )


def unexplained(tree: ast.Module) -> Iterator[str]:
    """Names of numeric module constants that no docstring follows."""
    for statement, following in zip_longest(tree.body, tree.body[1:]):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                continue
        match following:
            case ast.Expr(value=ast.Constant(value=str())):
                continue
        if CONSTANT.fullmatch(name) and is_numeric(value):
            yield name


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring of a module, its classes and its functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


def is_sentence(text: str) -> bool:
    """Return True if the first paragraph ends like a sentence, a list's head or a quoted form."""
    return re.search(r"[.!?:`)]$", text.split("\n\n", maxsplit=1)[0].strip()) is not None


def stray_wraps(text: str) -> list[str]:
    """Lines of one or two words in the middle of a paragraph: what a broken wrap leaves behind."""
    lines = text.splitlines()
    return [
        line
        for line, following in pairwise(lines)
        if line and following and not line.startswith(" ") and not following.startswith(" ")
        and len(line.split()) <= 2 and len(line) < 40 and not re.match(r"[-*|\d`]|.*:$", line)
    ]  # fmt: skip


def faults(path: Path) -> list[str]:
    """Return what is wrong with the numbers and the docstrings of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [
        f"{name}: a numeric constant says its unit, origin and effect on the line below"
        for name in unexplained(tree)
    ]
    for line, text in docstrings(tree):
        if not is_sentence(text):
            found.append(f"line {line}: a docstring is a sentence")
        found += [f"line {line}: wrap it again: {wrap}" for wrap in stray_wraps(text)]
    return [f"{path.relative_to(REPOSITORY)}: {fault}" for fault in found]


@pytest.mark.parametrize("package", PACKAGES)
def test_numbers_and_docstrings_say_what_they_mean(package):
    assert [fault for path in modules(package) for fault in faults(path)] == []


def test_the_checks_see_what_they_are_for():
    tree = ast.parse('A = 3\n"""Pixels."""\nB = 2 * 3\n_C: Final = (1, 2.5)\nD = "text"\nE = f(3)\n')
    assert list(unexplained(tree)) == ["B", "_C"]
    assert not is_sentence("shape of the thing")
    assert stray_wraps("A line that was wrapped at the wrong\nplace\nand goes on.") == ["place"]


@pytest.mark.parametrize("folder", [*PACKAGES, "benchmarks", "examples", "tests"])
def test_no_docstring_begins_with_a_clause(folder):
    clauses = [
        f"{path.relative_to(REPOSITORY)}:{line}"
        for path in sorted((REPOSITORY / folder).rglob("*.py"))
        if TEXT_WITH_CLAUSE.search(source := path.read_text(encoding="utf-8"))
        for line, text in docstrings(ast.parse(source))
        if CLAUSE.match(text)
    ]
    assert clauses == [], 'a docstring says what the thing is for: "Return why …", not "What …"'


@pytest.mark.parametrize("word", ["What", "Which", "None", "Where", "How", "Those", "As", "Whose"])
def test_a_noun_clause_is_recognised(word):
    assert CLAUSE.match(f"{word} the thing says.")
    assert TEXT_WITH_CLAUSE.search(f'def f():\n    """{word} the thing says."""\n')
    assert not CLAUSE.match(f"Return {word.lower()} the thing says.")
    assert not CLAUSE.match(f"{word}ever it says.")
