"""The manual builds without a warning, and its lists are complete. Its commands run in `tests/end_to_end`."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys

import pytest

from agent.wire.messages import ReasonCode
from tests.needs import REPOSITORY

DOCS = REPOSITORY / "docs"
TROUBLES = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_it_builds_without_a_warning_and_holds_every_page(tmp_path):
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)],
        cwd=REPOSITORY,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    assert "not included in the" not in built.stderr, "a page that no menu names"
    pages = {path.stem for path in DOCS.glob("*.md")} - {"index"} | {"contributing"}
    assert sorted(page for page in pages if not (tmp_path / page / "index.html").exists()) == []
    start = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'(?:src|href)="(https?://[^"]+\.(?:js|css|woff2?))"', start) == []


def test_every_reason_is_explained():
    assert [code.value for code in ReasonCode if f"| `{code.value}` |" not in TROUBLES] == []


def checks() -> set[str]:
    """Return the names of `Check(...)` in the rooms that examine."""
    found = set()
    for path in sorted((REPOSITORY / "orchestrator/doctor").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Check":
                names = [x.value for x in ast.walk(node.args[0]) if isinstance(x, ast.Constant)]
                found.update(name for name in names if isinstance(name, str))
    return found


def test_every_check_of_the_doctor_is_explained():
    found = checks()
    assert {"home", "opencl", "broker"} <= found
    assert sorted(name for name in found if f"| `{name}` |" not in TROUBLES) == []
