"""The wheel, and a delegate of another package that its entry point alone makes known: planned and measured.

The wheel and `examples/foreign_delegate` are installed into an environment of their own, beside packages of
somebody else's that have the names of this repository's folders. Everything here runs from it.
"""

from __future__ import annotations

import compileall
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from delegate_farm import Interpreter
from runtime.model.schema import BuiltinOperator
from tests.end_to_end.conftest import run_farm
from tests.end_to_end.odd_models import partial_model
from tests.needs import REPOSITORY
from tests.runtime.models import Builder
from tests.services.known import CPU_ALONE

MANIFEST = """\
version: 1
campaign: foreign
defaults:
  measure:
    blocks: 1
    rounds: 3
    slice: {{seconds: 0.06}}
    warmup: {{runs: 2, min_seconds: 0}}
models:
  - {{id: partial, source: partial.tflite}}
delegates:
  cpu: {{kind: cpu}}
  blocks: {{kind: elementwise, rows: [7, 1024]}}
  sums: {{kind: elementwise, operators: arithmetic}}
  mine: {delegate}
baseline: {{delegate: cpu}}
"""
DAY = """\
version: 1
campaign: {name}
defaults:
  measure: {{warmup: {{runs: 1, min_seconds: 0}}, blocks: 1, rounds: 3, slice: {{seconds: 0.01}}}}
models:
  - {{id: rows, source: rows.tflite}}
delegates:
  mine: {{kind: elementwise, rows: {rows}}}
"""
ROWS = 4096
SOMEBODY_ELSES = ("agent", "orchestrator", "runtime", "templates")
COLUMNS = ["blocks-1024", "blocks-7", "cpu", "mine", "sums"]


@dataclass(frozen=True)
class Installed:
    """An environment with the package, and a farm home and a model of its own."""

    python: Path
    folder: Path

    @property
    def packages(self) -> Path:
        """The folder into which pip installs."""
        return self.folder / f"venv/lib/python{sysconfig.get_python_version()}/site-packages"

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run this environment's Python."""
        return subprocess.run(
            [str(self.python), "-P", *arguments],
            env=os.environ | CPU_ALONE | {"FARM_HOME": str(self.folder / "home")},
            capture_output=True,
            text=True,
            check=False,
        )

    def farm(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`farm ...` in this environment."""
        return self.run("-c", "from delegate_farm.orchestrator.cli import main; main()", *arguments)

    def manifest(self, delegate: str = "{kind: elementwise}") -> str:
        """Write a campaign file with this delegate beside the others."""
        path = self.folder / "models.yaml"
        path.write_text(MANIFEST.format(delegate=delegate), encoding="utf-8")
        return str(path)


@pytest.fixture(scope="module")
def installed(tmp_path_factory, wheel) -> Installed:
    folder = tmp_path_factory.mktemp("foreign")
    (folder / "partial.tflite").write_bytes(partial_model())
    source = shutil.copytree(REPOSITORY / "examples/foreign_delegate", folder / "source")
    venv.create(folder / "venv", with_pip=False)
    installed = Installed(folder / "venv/bin/python", folder)
    installed.packages.joinpath("dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    for name in SOMEBODY_ELSES:
        (installed.packages / name).mkdir()
        (installed.packages / name / "__init__.py").write_text("raise ImportError('somebody else's')")
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(installed.python),
        "install",
        "--no-compile",
        *offline,
    ]
    ran = subprocess.run(
        [*pip, str(wheel), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    # Runners may not write here: each of their processes would compile anew what pip compiles elsewhere.
    for part in ("agent", "runtime"):
        compileall.compile_dir(installed.packages / "delegate_farm" / part, quiet=2)
    return installed


@pytest.fixture(scope="module")
def measured(installed) -> list[dict]:
    """Return the objects of `farm results --format json` after the campaign."""
    ran = installed.farm("submit", installed.manifest())
    assert ran.returncode == 0, ran.stdout + ran.stderr
    ran = installed.farm("results", "--format", "json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.slow
def test_the_wheel_installs_one_name_and_leaves_others_alone(installed):
    (record,) = installed.packages.glob("delegate_farm-*.dist-info/RECORD")
    with record.open(newline="") as file:
        listed = {name: digest for name, digest, _ in csv.reader(file)}
    outside = ("..", record.parent.name)
    assert {Path(name).parts[0] for name in listed} - {*outside} == {"delegate_farm"}
    assert {name for name in listed if not (record.parent.parent / name).is_file()} == set()
    for name in SOMEBODY_ELSES:
        assert [path.name for path in (installed.packages / name).iterdir()] == ["__init__.py"]


API = """
import sys
import delegate_farm, numpy

delegate = delegate_farm.load_delegate("elementwise")
interpreter = delegate_farm.Interpreter(sys.argv[1], experimental_delegates=[delegate])
interpreter.allocate_tensors()
interpreter.set_tensor(interpreter.get_input_details()[0]["index"], numpy.load(sys.argv[2]))
interpreter.invoke()
numpy.save(sys.argv[3], interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
"""


def test_python_runs_a_model_by_the_one_name(installed, tmp_path):
    model, given, found = installed.folder / "partial.tflite", tmp_path / "given.npy", tmp_path / "found.npy"
    clone = Interpreter(str(model))
    clone.allocate_tensors()
    (wanted,) = clone.get_input_details()
    values = np.random.default_rng(1).normal(size=wanted["shape"]).astype(wanted["dtype"])
    np.save(given, values)
    ran = installed.run("-c", API, str(model), str(given), str(found))
    assert ran.returncode == 0, ran.stderr
    assert "3 operations will run on the delegate" in ran.stderr
    clone.set_tensor(wanted["index"], values)
    clone.invoke()
    (output,) = clone.get_output_details()
    np.testing.assert_array_equal(np.load(found), clone.get_tensor(output["index"]), strict=True)


def test_the_probe_reports_it_on_the_device_that_it_runs_on(installed):
    report = json.loads(installed.run("-m", "delegate_farm.agent.runner", "--probe").stdout)
    hosts = {d["device_id"]: d for d in report["devices"] if "elementwise" in d["delegates"]}
    assert list(hosts) == ["host-cpu"]
    assert {"cpu", "elementwise"} <= set(hosts["host-cpu"]["delegates"])
    assert hosts["host-cpu"]["delegate_environments"]["elementwise"]["elementwise_delegate"] == "1.0"


@pytest.mark.exhaustive
def test_farm_devices_offers_it(installed):
    ran = installed.farm("devices", "--json")
    assert ran.returncode == 0, ran.stderr
    (host,) = [d for d in json.loads(ran.stdout)["devices"] if d["device_id"] == "host-cpu"]
    assert "elementwise" in host["delegates"]


@pytest.mark.slow
def test_the_matrix_plans_it_on_that_device(installed):
    ran = installed.farm("submit", installed.manifest(), "--dry-run", "--json")
    assert ran.returncode == 0, ran.stderr
    planned = {cell["delegate"]: cell["device"] for cell in json.loads(ran.stdout)}
    assert planned == dict.fromkeys(COLUMNS, "host-cpu")


@pytest.mark.exhaustive
def test_it_is_measured_and_its_output_is_judged(measured):
    assert sorted(cell["delegate"] for cell in measured) == COLUMNS
    for cell in measured:
        assert cell["status"] == "done", cell["reason"]
        assert cell["accuracy"]["verdict"] == "pass", cell["accuracy"]
        assert cell["samples"] >= 12
        assert cell["latency_ms"]["p50"] > 0


@pytest.mark.exhaustive
def test_its_delegation_report_says_what_it_took_and_what_not(measured):
    delegation = {cell["delegate"]: cell["delegation"] for cell in measured}
    assert delegation["cpu"] is None
    for name in ("mine", "blocks-7", "blocks-1024"):
        said = delegation[name]
        assert (said["status"], said["delegated_ops"], said["total_ops"]) == ("partial", 3, 4)
        assert said["partitions"] == 2, "MUL and RELU before the REVERSE_SEQUENCE, ADD after it"
        assert [(f["op"], f["reason"]) for f in said["fallbacks"]] == [
            ("REVERSE_SEQUENCE", "operator is not taken")
        ]
    assert delegation["sums"]["delegated_ops"] == 2
    assert [f["op"] for f in delegation["sums"]["fallbacks"]] == ["RELU", "REVERSE_SEQUENCE"]


REFUSED = {
    "{kind: elementwise, row: 3}": (
        "unknown option 'row' of delegate kind 'elementwise'; did you mean 'rows'"
    ),
    "{kind: elementwise, threads: 2}": (
        "unknown option 'threads' of delegate kind 'elementwise'; known: oper"
    ),
    "{kind: elementwise, rows: 0}": "expected a whole number at least 1 at most 1000000, found 0",
    "{kind: elementwise, operators: most}": "unknown operators 'most'; known: all, arithmetic",
    "{kind: elementwize}": "unknown delegate kind 'elementwize'; did you mean 'elementwise'?",
}


@pytest.mark.slow
def test_what_its_descriptor_does_not_declare_is_refused_before_anything_runs(installed):
    first, *others = REFUSED
    wrong = "".join(f"\n  wrong-{n}: {delegate}" for n, delegate in enumerate(others))
    ran = installed.farm("submit", installed.manifest(first + wrong))
    assert ran.returncode == 2
    said = dict(re.findall(r"models\.yaml:(\d+):\d+: (.+)", ran.stderr))
    assert list(said) == [str(15 + n) for n in range(len(REFUSED))], "the line of each delegate"
    for found, wanted in zip(said.values(), REFUSED.values(), strict=True):
        assert wanted in found


def test_without_the_package_its_name_is_unknown(installed, tmp_path):
    ran = run_farm(tmp_path, "submit", "--check", installed.manifest())
    assert ran.returncode == 2
    assert "unknown delegate kind 'elementwise'; known: cpu, gpu, litert" in ran.stderr


def rows_model() -> bytes:
    """MUL and ADD on `ROWS` rows of four values."""
    b = Builder()
    x = b.input(np.float32, (ROWS, 4))
    scaled, out = b.tensor(np.float32, (ROWS, 4)), b.tensor(np.float32, (ROWS, 4))
    gain, offset = b.constant(np.full(4, 1.5, np.float32)), b.constant(np.full(4, 0.5, np.float32))
    b.operator(BuiltinOperator.MUL, [x, gain], [scaled], {"fused_activation_function": 0})
    b.operator(BuiltinOperator.ADD, [scaled, offset], [out], {"fused_activation_function": 0})
    return b.write([out])


@pytest.mark.exhaustive
def test_a_rerun_finds_a_planted_regression_and_ends_with_3(installed):
    """One row at a time is thousands of calls in place of two: slower on any machine, busy or not."""
    (installed.folder / "rows.tflite").write_bytes(rows_model())
    for name, rows in (("monday", ROWS), ("tuesday", 1)):
        day = installed.folder / f"{name}.yaml"
        day.write_text(DAY.format(name=name, rows=rows))
        ran = installed.farm("submit", str(day))
        assert ran.returncode == 0, ran.stdout + ran.stderr
    for first, second, verdict, code in (
        ("monday", "tuesday", "slower", 3),
        ("tuesday", "monday", "faster", 0),
    ):
        ran = installed.farm("compare", first, second, "--rerun", "--fail-on", "regression", "--json")
        assert ran.returncode == code, ran.stdout + ran.stderr
        found = json.loads(ran.stdout)
        (change,) = found["changes"]
        assert (change["key"], change["verdict"]) == (["rows", "mine", "host-cpu", "quick"], verdict)
        assert (found["paired"], change["ratio"]["blocks"] >= 3) == (True, True)
        assert found["rerun"]["left_out"] == []
