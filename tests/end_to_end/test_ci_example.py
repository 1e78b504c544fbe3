"""The example of `examples/ci`: a build passes with its model, and fails with a slow one in its place.

By default its files alone are checked, and how its tests call the API: `tests/orchestrator/cli` meets and
exceeds budgets, from the command line and from Python, and finds regressions.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import create_autospec
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml

from runtime.model.graph import Model, Operator, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.writer import write_model
from tests.needs import REPOSITORY
from tests.services.forks import run
from tests.services.known import CPU_ALONE

EXAMPLE = REPOSITORY / "examples/ci"


def model(width: int) -> bytes:
    """Build a matrix product of 64 rows by `width` x `width` numbers."""
    weights = np.full((width, width), 1 / width, np.float32)
    tensors = (
        Tensor(0, "input", TensorType.FLOAT32, (64, width)),
        Tensor(
            1, "weights", TensorType.FLOAT32, (width, width), buffer=1, data=memoryview(weights.tobytes())
        ),
        Tensor(2, "output", TensorType.FLOAT32, (64, width)),
    )
    product = Operator(0, BuiltinOperator.FULLY_CONNECTED, version=1, inputs=(0, 1, -1), outputs=(2,))
    graph = Subgraph(0, "main", tensors, (0,), (2,), (product,))
    return write_model(Model(version=3, description="", subgraphs=(graph,)))


@dataclass(frozen=True)
class Project:
    """A copy of the example, and a farm of its own."""

    folder: Path

    def submitted(self) -> subprocess.CompletedProcess[str]:
        """`farm submit` as the workflow runs it."""
        return self.farm("submit", "models.yaml", "--junit", "farm.xml")

    def farm(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `farm` in the project's folder."""
        return run("farm", *arguments, cwd=self.folder, env=self._environment)

    def tested(self) -> subprocess.CompletedProcess[str]:
        """The example's own tests."""
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_model.py"],
            cwd=self.folder,
            env=self._environment | {"PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def _environment(self) -> dict[str, str]:
        return os.environ | CPU_ALONE | {"FARM_HOME": str(self.folder / "home")}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("build") / "project")
    return Project(folder)


@pytest.fixture(scope="module")
def built(project: Project) -> Project:
    """Return the project, whose model has been submitted and is fast enough."""
    (project.folder / "model.tflite").write_bytes(model(width=64))
    ran = project.submitted()
    assert ran.returncode == 0, ran.stderr
    return project


@pytest.mark.exhaustive
def test_a_build_passes_with_a_fast_model(built: Project) -> None:
    assert ElementTree.parse(built.folder / "farm.xml").find(".//failure") is None
    ran = built.tested()
    assert ran.returncode == 0, ran.stdout


@pytest.mark.exhaustive
def test_a_build_fails_once_its_model_is_slow(built: Project) -> None:
    (built.folder / "model.tflite").write_bytes(model(width=4096))
    ran = built.submitted()
    assert ran.returncode == 3
    assert "budget p50<=5ms exceeded: model cpu@host-cpu" in ran.stderr
    (failed,) = ElementTree.parse(built.folder / "farm.xml").iterfind(".//failure")
    assert failed.attrib["message"].startswith("exceeded: ")
    ran = built.tested()
    assert ran.returncode == 1
    assert "AssertionError: model on cpu@host-cpu: p50" in ran.stdout
    assert "1 failed, 1 passed" in ran.stdout
    ran = built.farm("compare", "build~1", "build", "--fail-on", "regression")
    assert ran.returncode == 5, "by how much sessions of this machine differ was not measured"
    assert "open" in ran.stdout


def test_the_campaign_of_the_example_is_one(project: Project) -> None:
    (project.folder / "model.tflite").write_bytes(model(width=64))
    ran = project.farm("submit", "--check", "models.yaml")
    assert ran.returncode == 0, ran.stderr


def test_the_tests_of_the_example_call_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("example_tests", EXAMPLE / "test_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    called = {}
    for name in ("assert_latency", "assert_accuracy"):
        called[name] = create_autospec(getattr(module, name))
        monkeypatch.setattr(module, name, called[name])
    for name, test in vars(module).items():
        if name.startswith("test_"):
            test()
    assert {name: double.call_count for name, double in called.items()} == dict.fromkeys(called, 1)


def test_the_workflow_runs_commands_that_there_are(project: Project) -> None:
    jobs = yaml.safe_load((EXAMPLE / "workflow.yml").read_text())["jobs"]
    commands = [step["run"].split() for step in jobs["model"]["steps"] if "run" in step]
    verbs = [words[1] for words in commands if words[0] == "farm"]
    assert verbs == ["submit", "compare"]
    for verb, words in zip(verbs, [w for w in commands if w[0] == "farm"], strict=True):
        told = project.farm(verb, "--help").stdout
        assert all(word in told for word in words if word.startswith("--"))
