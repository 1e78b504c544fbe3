"""The server reads models with the bounded reader alone: none of its processes has a runtime to run one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.orchestrator.cli.models import unary_model

IMPORT_ALL_AND_RESOLVE = """\
import importlib, pkgutil, sys
from pathlib import Path
import orchestrator
from orchestrator.manifest.campaign import ModelEntry
from orchestrator.sources.resolve import resolve
from orchestrator.sources.store import Store

modules = [module.name for module in pkgutil.walk_packages(orchestrator.__path__, "orchestrator.")]
for name in modules:
    if "migrations" not in name:
        importlib.import_module(name)
assert resolve(ModelEntry("m", "m.tflite"), Store(Path("store")), Path()).problem is None
print(len(modules), *sys.modules)
"""
ABLE_TO_RUN = (
    "runtime.api.interpreter",
    "runtime.plan",
    "runtime.ops",
    "runtime.delegates",
    "runtime.api.compiled_model",
)
LIBRARIES = {"ai_edge_litert", "pyopencl", "tensorflow", "tflite_runtime"}


def test_no_module_of_the_orchestrator_brings_a_runtime_into_its_process(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(unary_model())
    command = [sys.executable, "-W", "ignore", "-c", IMPORT_ALL_AND_RESOLVE]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    count, *loaded = ran.stdout.split()
    assert int(count) > 80
    assert "runtime.model.reader" in loaded
    assert [name for name in loaded if name.startswith(ABLE_TO_RUN)] == []
    assert LIBRARIES & {name.partition(".")[0] for name in loaded} == set()
