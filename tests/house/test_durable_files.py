"""One module, `runtime.common.durable`, writes files that must survive; the others are listed here."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.needs import REPOSITORY

DURABLE = "runtime/common/durable.py"
PLAIN = {
    "agent/devices.py": "the log of a process that ends with the call",
    "agent/link/artifact_client.py": "a download that is hashed before it is kept",
    "agent/link/signing.py": "lines at the end of a file that is read entry by entry",
    "agent/machine/host_tuning.py": "settings of the kernel",
    "agent/machine/sensors/recording.py": "a file of the attempt's folder, hashed by who reads it",
    "agent/processes/cgroup.py": "files of the kernel",
    "agent/processes/sandbox/survey.py": "a trial, in a folder that is deleted behind it",
    "agent/processes/sandbox/view.py": "a map of the kernel, and empty files on which others are mounted",
    "agent/processes/supervisor.py": "the log of a runner",
    "agent/runner/judge/drop.py": "a file of the attempt's folder, hashed by who reads it",
    "orchestrator/cli/budgets.py": "--junit FILE, made anew by each call",
    "orchestrator/cli/devices.py": "a model in a temporary folder",
    "orchestrator/farm/again/bundle.py": "files of a bundle in a temporary folder",
    "orchestrator/cli/repro.py": "--out FILE, which must be new",
    "orchestrator/db/engine/copies.py": "a script in a temporary folder",
    "orchestrator/dispatch/embedded.py": "the log of an agent",
    "orchestrator/results/metrics_table.py": "a page of the manual, for its authors",
    "orchestrator/site/build.py": "a page in a folder that takes its name as a whole",
}
"""Modules of agent and orchestrator that write a file in place, and why it may be cut off."""

MODULES = [
    str(path.relative_to(REPOSITORY))
    for floor in ("agent", "orchestrator", "runtime")
    for path in sorted((REPOSITORY / floor).rglob("*.py"))
]


def writes_in_place(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    parts = [part for argument in call.args[:1] for part in ast.walk(argument)]
    modes = [str(part.value) for part in parts if isinstance(part, ast.Constant)]
    opens = call.func.attr == "open" and any(mode[:1] in ("w", "a", "x") for mode in modes)
    return opens or call.func.attr in ("write_text", "write_bytes")


@cache
def habits(module: str) -> tuple[bool, bool]:
    """Return whether a module waits for the disk, and whether it writes a file in place."""
    tree = ast.parse((REPOSITORY / module).read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    waits = any(isinstance(call.func, ast.Attribute) and call.func.attr == "fsync" for call in calls)
    return waits, any(map(writes_in_place, calls))


@pytest.mark.parametrize("floor", ["agent", "orchestrator", "runtime"])
def test_one_module_waits_for_the_disk(floor):
    assert {module for module in MODULES if module.startswith(floor) and habits(module)[0]} <= {DURABLE}


def test_what_is_written_in_place_is_listed_with_the_reason():
    found = {module for module in MODULES if not module.startswith("runtime/") and habits(module)[1]}
    # A command's front page writes to a formatter.
    assert found - {"agent/cli.py", "orchestrator/cli/front.py"} == set(PLAIN)
