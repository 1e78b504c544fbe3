"""Each import contract is seen to break: one forbidden import in a copy of the tree, and the gate says so."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.needs import REPOSITORY

PACKAGES = ("delegate_farm", "orchestrator", "agent", "runtime")

BREACHES = {
    "C1": ("runtime/model/reader.py", "import agent.config"),
    "C2": ("orchestrator/farm/__init__.py", "import agent.config"),
    "C3": ("agent/wire/messages.py", "import redis"),
    "C4": ("runtime/measure/samples/summary.py", "import pydantic"),
    "C5": ("runtime/ops/__init__.py", "import runtime.plan"),
    "C6": ("runtime/plan/execution.py", "import pyopencl"),
    "C7": ("orchestrator/policy/why.py", "import time"),
    "C8": ("agent/attempt/journal.py", "import agent.daemon"),
    "C9": ("orchestrator/results/records.py", "import orchestrator.site.plots"),
    "C10": ("agent/processes/oom.py", "import agent.attempt.journal"),
    "C11": ("orchestrator/results/records.py", "import sqlalchemy"),
    "C12": ("orchestrator/db/results/records.py", "import orchestrator.db.cells.ends"),
    "C13": ("runtime/delegates/gpu/choose/tuning.py", "import runtime.delegates.gpu.backends.opencl.device"),
}
"""Contract → (file, the import that it forbids there). C9 and C10 also fail when a room has no floor."""


def declared() -> list[str]:
    """Return the numbers of the contracts in pyproject.toml, as `C1`."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    return [contract["name"].split()[0] for contract in settings["tool"]["importlinter"]["contracts"]]


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """Copy the packages' Python files and the settings, for tests that leave the copy as it was."""
    target: Path = tmp_path_factory.mktemp("contracts") / "tree"
    for package in PACKAGES:
        shutil.copytree(REPOSITORY / package, target / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "pyproject.toml", target)
    return target


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    """Run the gate on `tree`; it reads no file twice that has not changed."""
    command = [str(Path(sys.executable).parent / "lint-imports")]
    environment = {"PYTHONPATH": str(tree)}
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


def test_every_contract_has_a_breach_below():
    assert declared() == list(BREACHES)


def test_the_tree_as_it_is_breaks_no_contract(tree):
    ran = lint(tree)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("contract", BREACHES)
def test_a_forbidden_import_breaks_its_contract(contract, tree):
    path, forbidden = BREACHES[contract]
    module = tree / path
    kept = module.read_text(encoding="utf-8")
    try:
        module.write_text(f"{kept}\n{forbidden}\n", encoding="utf-8")
        ran = lint(tree)
    finally:
        module.write_text(kept, encoding="utf-8")
    broken = ran.stdout.partition("Broken contracts")[2]
    assert re.search(rf"^{contract} ", broken, re.MULTILINE), ran.stdout + ran.stderr


@pytest.mark.parametrize("package", ["orchestrator", "agent", "runtime"])
def test_a_room_without_a_floor_is_refused(package, tree):
    cellar = tree / package / "cellar.py"
    try:
        cellar.write_text('"""A module that no layer names."""\n', encoding="utf-8")
        ran = lint(tree)
    finally:
        cellar.unlink()
    assert ran.returncode != 0
    assert f"{package}.cellar" in ran.stdout + ran.stderr
