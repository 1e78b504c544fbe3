"""The catalogue speaks of the source as it is: no entry is stale, and each names tests that exist."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache

import pytest

from tests.mutants.catalogue import Mutant, mutants
from tests.mutants.syntax import mutations
from tests.needs import REPOSITORY


@pytest.fixture(scope="module")
def catalogue() -> list[Mutant]:
    return mutants()


@cache
def functions(path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def changes(source: str, function: str = "f") -> set[str]:
    return {what for what, _ in mutations(source, function)}


def test_every_mutant_is_another_text(catalogue):
    sources = {mutant.file: (REPOSITORY / mutant.file).read_text() for mutant in catalogue}
    assert [mutant.name for mutant in catalogue if mutant.text == sources[mutant.file]] == []


def test_every_picked_mutant_compiles(catalogue):
    for mutant in catalogue:
        if not mutant.is_generated:
            compile(mutant.text, mutant.file, "exec")


def test_every_mutant_has_a_name_of_its_own(catalogue):
    assert [name for name, times in Counter(mutant.name for mutant in catalogue).items() if times > 1] == []


def test_the_named_tests_exist(catalogue):
    named = {name for mutant in catalogue for name in mutant.tests}
    assert [name for name in sorted(named) if is_gone(name)] == []


def is_gone(named: str) -> bool:
    file, _, function = named.partition("::")
    path = REPOSITORY / file
    return not path.exists() or (bool(function) and function not in functions(path))


def test_every_protection_is_a_sentence(catalogue):
    picked = [mutant for mutant in catalogue if not mutant.is_generated]
    assert len(picked) > 100
    assert [mutant.name for mutant in picked if not mutant.what.endswith(".")] == []


def test_conditions_bounds_operands_statements_and_numbers_are_changed():
    assert changes(
        "def f(a, b):\n    if a and not b:\n        raise ValueError\n    a.b(1)\n    return a < b\n"
    ) == {
        "a and (not b) -> not",
        "a and (not b) -> a",
        "a and (not b) -> not b",
        "without raise ValueError",
        "without a.b(1)",
        "1 -> 2",
        "a < b -> a <= b",
    }


def test_texts_flags_and_log_calls_are_left_alone():
    source = "def f(a: int = 3):\n    log.info('a', 1)\n    return g('text', flag=True)\n"
    assert changes(source) == {"3 -> 4"}


def test_a_changed_module_holds_one_change():
    (found,) = [
        text
        for what, text in mutations("X = 1  # one\nclass C:\n    def f(self):\n        return 1\n", "C.f")
    ]
    assert found == "X = 1  # one\nclass C:\n    def f(self):\n        return 2\n"


def test_a_function_that_is_gone_is_an_error():
    with pytest.raises(LookupError):
        list(mutations("def f(): pass", "g"))
