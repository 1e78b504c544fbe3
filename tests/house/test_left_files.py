"""One module of the agent opens, marks and removes what lies below the folder of an attempt."""

from __future__ import annotations

import ast

import pytest

from tests.needs import REPOSITORY

FORBIDDEN = {"rmtree", "touch", "rglob"}
"""Calls that follow what a runner left, or that end in a deep folder."""
OWN = {"agent/attempt/references.py", "agent/link/cache.py"}
"""Modules that use them on folders of the agent's own, which no runner can write into."""
MODULES = [
    path
    for room in ("attempt", "link", "processes")
    for path in sorted((REPOSITORY / "agent" / room).rglob("*.py"))
    if str(path.relative_to(REPOSITORY)) not in OWN
]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_what_a_runner_left_is_touched_by_one_module(path):
    tree = ast.parse(path.read_text())
    called = {
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert called & FORBIDDEN <= ({"touch"} if path.name == "running.py" else set()), "see left_files"
