"""One machine, and a user's machine, have the packages of `requirements/demo.lock` and none of the lab's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import distributions, packages_distributions

import pytest
from packaging.specifiers import SpecifierSet

from tests.needs import REPOSITORY
from tests.orchestrator.cli.models import unary_model
from tests.services.known import CPU_ALONE

WITHOUT = r"""
import json, sys
from importlib.abc import MetaPathFinder

absent = set(json.loads(sys.argv[1]))

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from orchestrator.cli import run

codes = {line: run(line.split()) for line in sys.argv[2:]}
print("\n" + json.dumps(codes))
"""


def locked(name: str) -> set[str]:
    text = (REPOSITORY / "requirements" / name).read_text(encoding="utf-8")
    return {normal(found) for found in re.findall(r"^([A-Za-z0-9_.-]+)==", text, re.MULTILINE)}


def normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def test_every_locked_package_installs_on_the_python_of_debian_12() -> None:
    pinned = locked("test.lock")
    required = {
        normal(one.metadata["Name"]): one.metadata["Requires-Python"] or "" for one in distributions()
    }
    refusing = {
        name: versions
        for name, versions in required.items()
        if name in pinned and not SpecifierSet(versions).contains("3.11.2")
    }
    assert len(required) > 50
    assert not refusing, "bound them in pyproject.toml and `make lock`"


def said(folder, *lines: str, **environment: str) -> dict[str, int]:
    """Return the exit codes of command lines where only the packages of the demo are installed."""
    more = locked("test.lock") - locked("demo.lock")
    absent = [
        package
        for package, distributions in packages_distributions().items()
        if {normal(distribution) for distribution in distributions} <= more
    ]
    assert {"celery", "cryptography", "redis", "starlette"} <= set(absent)
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT, json.dumps(absent), *lines],
        env={**os.environ, **CPU_ALONE, "FARM_HOME": str(folder / "home"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in ran.stderr, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_farm_on_one_machine_needs_no_package_of_a_lab(tmp_path):
    model = tmp_path / "relu.tflite"
    model.write_bytes(unary_model())
    lines = (f"submit {model} --delegate cpu --dry-run", "status", "db check", "site build")
    assert said(tmp_path, *lines) == dict.fromkeys(lines, 0)


def test_a_users_machine_needs_no_package_of_a_lab(tmp_path):
    at = {"FARM_URL": "http://127.0.0.1:9", "FARM_TOKEN": "rita." + "0" * 64}
    assert said(tmp_path, "status", **at) == {"status": 4}
