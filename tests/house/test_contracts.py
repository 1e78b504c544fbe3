"""Each import contract is seen to break, by a forbidden import in a copy of the tree that the gate names."""

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
    "C10": ("agent/processes/cgroup.py", "import agent.attempt.journal"),
    "C11": ("orchestrator/results/records.py", "import sqlalchemy"),
    "C12": ("orchestrator/db/results/records.py", "import orchestrator.db.cells.ends"),
    "C13": ("runtime/delegates/gpu/choose/tuning.py", "import runtime.delegates.gpu.backends.opencl.device"),
}
"""Contract → (file, the import that it forbids there). C9 and C10 also fail when a room has no floor."""
CYCLE = "C8"
"""The contract whose breach is looked at alone: others make cycles, too."""
ROOMS = ("orchestrator", "agent", "runtime")


def declared() -> list[str]:
    """Return the numbers of the contracts in pyproject.toml, as `C1`."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    return [contract["name"].split()[0] for contract in settings["tool"]["importlinter"]["contracts"]]


@pytest.fixture
def tree(tmp_path) -> Path:
    """Copy the packages' Python files and the settings."""
    target: Path = tmp_path / "tree"
    for package in PACKAGES:
        shutil.copytree(REPOSITORY / package, target / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "pyproject.toml", target)
    return target


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    """Run the gate on `tree`."""
    command = [str(Path(sys.executable).parent / "lint-imports")]
    environment = {"PYTHONPATH": str(tree)}
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


def test_every_contract_has_a_breach_below():
    assert declared() == list(BREACHES)


@pytest.mark.slow
def test_the_tree_as_it_is_breaks_no_contract(tree):
    ran = lint(tree)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def broken(tree: Path) -> dict[str, str]:
    """Return what the gate says of each contract that is broken, in one line."""
    said = lint(tree).stdout.partition("Broken contracts")[2]
    found = re.findall(r"^(C\d+) (.*?)(?=^C\d+ |\Z)", said, re.MULTILINE | re.DOTALL)
    return {name: " ".join(text.split()) for name, text in found}


def test_a_forbidden_import_breaks_its_contract(tree):
    places = {name: breach for name, breach in BREACHES.items() if name != CYCLE}
    for path, forbidden in places.values():
        text = (tree / path).read_text(encoding="utf-8")
        (tree / path).write_text(f"{text}\n{forbidden}\n", encoding="utf-8")
    found = broken(tree)
    for name, (path, forbidden) in places.items():
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        assert f"{module} -> {forbidden.removeprefix('import ')} (l." in found.get(name, ""), name


def test_a_cycle_and_a_room_without_a_floor_are_refused(tree):
    path, forbidden = BREACHES[CYCLE]
    text = (tree / path).read_text(encoding="utf-8")
    (tree / path).write_text(f"{text}\n{forbidden}\n", encoding="utf-8")
    for package in ROOMS:
        (tree / package / "cellar.py").write_text('"""A module that no layer names."""\n', encoding="utf-8")
    found = broken(tree)
    assert "- .attempt -> .daemon" in found[CYCLE]
    for package in ROOMS:
        assert any(f"not listed as layers: - {package}.cellar" in text for text in found.values()), package
