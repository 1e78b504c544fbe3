"""Importing a door must not pull in certain packages; static contracts cannot see dynamic imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import agent.wire

_SPEAKS_TO_REDIS = ("bounded_transport",)
"""Modules of the wire that bound what the broker's client library reads, and so import it."""

GROUND_FLOOR = "runtime.common."
"""The wire stands on it. Its import also imports `runtime` itself, which imports the rest on demand alone."""

CASES = {
    "delegate_farm": {"numpy", "pyopencl", "celery", "sqlmodel", "pydantic", "ai_edge_litert"},
    "delegate_farm.delegates": {"pyopencl", "celery", "sqlmodel", "pydantic", "ai_edge_litert"},
    "runtime.model.reader": {"numpy", "pyopencl"},
    "runtime.api.interpreter": {"pyopencl", "celery", "sqlmodel", "pydantic", "ai_edge_litert"},
    "agent.wire.messages": {"runtime", "pyopencl", "numpy", "celery", "kombu", "redis", "cryptography"},
    ", ".join(
        f"agent.wire.{path.stem}"
        for path in sorted(Path(agent.wire.__file__).parent.glob("*.py"))
        if path.stem not in ("__init__", *_SPEAKS_TO_REDIS)
    ): {"runtime", "pyopencl", "numpy", "celery", "kombu", "redis"},
    **{
        f"agent.wire.{stem}": {"runtime", "pyopencl", "numpy", "celery", "pydantic"}
        for stem in _SPEAKS_TO_REDIS
    },
    "orchestrator.farm": {"celery", "kombu", "redis", "starlette", "uvicorn", "httpx", "cryptography"},
    "orchestrator.sources": {"starlette", "uvicorn", "httpx", "cryptography"},
    "orchestrator.cli": {"sqlmodel", "sqlalchemy", "numpy", "pyopencl", "jinja2", "pydantic"},
}


@pytest.mark.parametrize("modules", CASES, ids=lambda modules: modules.partition(",")[0])
def test_import_pulls_in_only_what_it_needs(modules):
    code = f"import sys, {modules}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    loaded = {name for name in ran.stdout.split() if not (name + ".").startswith(GROUND_FLOOR)}
    assert {name for name in loaded - {"runtime"} if name.partition(".")[0] in CASES[modules]} == set()


OF_AN_ATTEMPT = "agent.runner.decide, agent.runner.turns.measure, agent.runner.advice"


def test_a_process_of_an_attempt_loads_the_gpu_delegate_on_demand_alone():
    """Each cell starts several, and that delegate's modules would take a quarter of the start of each."""
    code = f"import sys, {OF_AN_ATTEMPT}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [name for name in ran.stdout.split() if name.startswith("runtime.delegates.gpu")] == []
