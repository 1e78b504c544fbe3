"""Every program that the product starts is isolated: a listed environment, no code from the current folder.

Read from the source: how processes are started, with which `env=`, and what follows `sys.executable`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from tests.needs import REPOSITORY

ROOTS = ("orchestrator", "agent", "runtime", "examples")
STARTERS = {
    "subprocess": {"Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"},
    "os": {
        "system", "popen", "posix_spawn", "posix_spawnp",
        *(f"exec{form}" for form in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
        *(f"spawn{form}" for form in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
    },
    "asyncio": {"create_subprocess_exec", "create_subprocess_shell"},
    "pty": {"spawn"},
    "concurrent.futures": {"ProcessPoolExecutor"},
}  # fmt: skip
"""Functions that start a program. Only `subprocess.run` and `subprocess.Popen` are allowed, with `env=`."""

MODULES = ("multiprocessing", "pexpect", "sh", "plumbum")
"""Modules that start processes with the whole environment."""

BECOMING = {"orchestrator/cli/lab.py": "os.execv", "agent/hold.py": "os.execvp"}
"""Where `farm lab lock` becomes the command that its user gave it, with that user's own environment."""

LAUNCH = "Launch"
"""The agent's description of a process (agent/processes/supervisor.py): its environment counts as `env=`."""

PLACES = ("realpath", "Path")
"""Functions that only ask where the interpreter is."""

ISOLATION = {"-I", "-P"}
"""Options of Python with which the folder where it starts is not searched for modules."""


@dataclass(frozen=True)
class Module:
    path: str
    tree: ast.Module

    def faults(self) -> Iterator[str]:
        nodes = list(ast.walk(self.tree))
        aliases = self._aliases(nodes)
        isolated = self._isolated(nodes)
        for node in nodes:
            where = f"{self.path}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield from (f"{where} imports {name}" for name in _imported(node) if name in MODULES)
            elif isinstance(node, ast.Attribute) and _dotted(node, aliases) == "sys.executable":
                if id(node) not in isolated:
                    yield f"{where} starts Python without -I or -P"
            elif isinstance(node, ast.Call):
                name = _dotted(node.func, aliases)
                if BECOMING.get(self.path) != name:
                    yield from (f"{where} {fault}" for fault in _faults_of(node, name))

    def _aliases(self, nodes: Sequence[ast.AST]) -> dict[str, str]:
        """Return the full name behind each imported name: `run` for `subprocess.run`, `sp` for
        `subprocess`.
        """
        found = {}
        for node in nodes:
            if isinstance(node, ast.Import):
                found |= {name.asname: name.name for name in node.names if name.asname}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
        return found

    def _isolated(self, nodes: Sequence[ast.AST]) -> set[int]:
        """Return the uses of `sys.executable` that start nothing, or that an isolating option follows."""
        calls = (node for node in nodes if isinstance(node, ast.Call))
        asked = {id(a) for c in calls if _dotted(c.func, {}).rpartition(".")[2] in PLACES for a in c.args}
        lists = [node.elts for node in nodes if isinstance(node, ast.List | ast.Tuple)]
        return asked | {
            id(first)
            for elements in lists
            for first, second in pairwise(elements)
            if isinstance(second, ast.Constant) and second.value in ISOLATION
        }


def _faults_of(call: ast.Call, name: str) -> Iterator[str]:
    module, _, function = name.rpartition(".")
    environment: ast.expr | None = None
    if function in STARTERS.get(module, ()):
        if name not in ("subprocess.run", "subprocess.Popen"):
            yield f"calls {name}"
            return
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        environment = given.get("env")
        if "shell" in given:
            yield f"calls {name} with a shell"
    elif name.endswith(LAUNCH):
        named = [keyword.value for keyword in call.keywords if keyword.arg == "environment"]
        environment = (*named, *call.args[1:2], None)[0]
    else:
        return
    if environment is None or (isinstance(environment, ast.Constant) and environment.value is None):
        yield f"calls {name} without an environment of its own"
    elif any(getattr(node, "attr", getattr(node, "id", "")) == "environ" for node in ast.walk(environment)):
        yield f"calls {name} with this process's whole environment"


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    names = [name.name for name in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return [name.partition(".")[0] for name in names]


def _dotted(node: ast.expr, aliases: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, aliases)}.{node.attr}"
    return aliases.get(node.id, node.id) if isinstance(node, ast.Name) else ""


_TELLING = re.compile(
    "|".join([
        "subprocess", "asyncio", r"\bpty\b", "executable", "Executor", LAUNCH,
        *(rf"\b{name}\b" for name in (*sorted(STARTERS["os"]), *MODULES)),
    ])
)  # fmt: skip
"""What stands in every module that can have a fault."""


def product() -> list[Path]:
    return [path for root in ROOTS for path in sorted((REPOSITORY / root).rglob("*.py"))]


def test_every_process_that_the_product_starts_is_isolated() -> None:
    files = product()
    assert len(files) > 300
    texts = {str(path.relative_to(REPOSITORY)): path.read_text() for path in files}
    modules = [Module(path, ast.parse(text)) for path, text in texts.items() if _TELLING.search(text)]
    assert len(modules) > 30
    assert [fault for module in modules for fault in module.faults()] == []


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("import subprocess\nsubprocess.run(['git'])", "without an environment"),
        ("import subprocess\nsubprocess.run(['git'], env=None)", "without an environment"),
        ("import subprocess as sp\nsp.Popen(['git'])", "without an environment"),
        ("from subprocess import check_output as ask\nask(['git'])", "calls subprocess.check_output"),
        ("import subprocess, os\nsubprocess.run(['git'], env=os.environ)", "whole environment"),
        ("import subprocess, os\nsubprocess.run(['git'], env={**os.environ, 'A': '1'})", "whole environment"),
        (
            "from os import environ\nimport subprocess\nsubprocess.run([], env=dict(environ))",
            "whole environment",
        ),
        ("import subprocess\nsubprocess.run('git', shell=True, env={})", "with a shell"),
        ("import os\nos.system('git')", "calls os.system"),
        ("import os\nos.execvp('git', [])", "calls os.execvp"),
        ("import asyncio\nasyncio.create_subprocess_exec('git')", "calls asyncio.create"),
        ("import multiprocessing", "imports multiprocessing"),
        ("from multiprocessing import Process", "imports multiprocessing"),
        ("import sys\ncommand = [sys.executable, '-m', 'pip']", "without -I or -P"),
        ("import sys\ncommand = sys.executable", "without -I or -P"),
        (
            "import os\nfrom agent.processes.supervisor import Launch\nLaunch([], os.environ, 1)",
            "whole environ",
        ),
        ("Launch(command=[], environment={**os.environ}, folder=1)", "whole environment"),
    ],
)
def test_a_process_that_is_not_isolated_is_named(source: str, fault: str) -> None:
    assert _TELLING.search(source)
    (found,) = Module("m.py", ast.parse(source)).faults()
    assert fault in found


def test_an_isolated_process_is_not_named() -> None:
    source = (
        "import subprocess, sys\nsubprocess.run([sys.executable, '-I', '-m', 'pip'], env=for_pip())\n"
        "COMMAND = (sys.executable, '-P', '-m', 'agent')\nLaunch([], for_runner(), folder)\n"
    )
    assert list(Module("m.py", ast.parse(source)).faults()) == []
