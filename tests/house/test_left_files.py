"""One module of the agent opens, marks and removes what lies below the folder of an attempt."""

from __future__ import annotations

import ast

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


def test_what_a_runner_left_is_touched_by_one_module():
    found = {
        (path.name, node.func.attr)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in FORBIDDEN
    }
    assert found <= {("running.py", "touch")}, "see left_files"
