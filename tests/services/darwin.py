"""Runs programs of the farm as if on macOS: an honest check of imports and branches, not of macOS itself.

Our own modules, and they alone, find a `sys` whose platform is darwin, and an `os`, a `time`, a `socket`
without the names that macOS has not. The list of these names is typeshed's, which mypy brings along. For
Python, the files of /proc and /sys are gone, and the functions of Linux's C library that ours call. `sysctl`,
`sw_vers` and `pmset` print what this module says, in the forms of their manual pages; `ps` is that of this
machine.
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterator
from pathlib import Path

import mypy

MODULES = ("os", "time", "socket", "resource", "signal", "select", "fcntl", "mmap")
OURS = ("agent", "runtime", "orchestrator", "delegate_farm")
C_FUNCTIONS = ("prctl", "unshare", "capset", "mount", "renameat2", "dl_iterate_phdr")
"""Functions of glibc that our modules call by ctypes and that macOS lacks, or has with other arguments."""

SYSCTL = """\
machdep.cpu.brand_string: Apple M2 Pro
hw.cpufamily: -634136515
hw.cpusubfamily: 4
hw.optional.floatingpoint: 1
hw.optional.arm.FEAT_DotProd: 1
hw.optional.arm.FEAT_SME: 0
kern.bootsessionuuid: 7A2C6E0F-33C1-4C55-9B3C-2F4E0B7C9A11
"""
"""Lines `name: value` as sysctl(8) prints them; the names are those of Apple's "Determining system
capabilities" and of xnu's bsd/kern/kern_sysctl.c."""

SW_VERS = "ProductName:\t\tmacOS\nProductVersion:\t\t14.5\nBuildVersion:\t\t23F79\n"
"""The form of sw_vers(1)."""

ON_MAINS = "Now drawing from 'AC Power'\n"
"""First line of `pmset -g batt`."""

THERM = """\
Note: No thermal warning level has been recorded
Note: No performance warning level has been recorded
2025-04-06 20:50:47 -0500 CPU Power notify
\tCPU_Scheduler_Limit \t= 100
\tCPU_Available_CPUs \t= 12
\tCPU_Speed_Limit \t= 100
"""
"""`pmset -g therm` as the README of fmorrisey/mac_sys_utils (mac_therm_logger) recorded it on a Mac."""

HOOK = """
import builtins, ctypes, json, os, sys
told = json.loads(open(os.path.join(os.path.dirname(__file__), "darwin.json")).read())
HIDDEN = ("/proc", "/sys", "/run")

class Without:
    def __init__(self, real, missing, own):
        self.__dict__.update(own, real_=real, missing_=frozenset(missing))
    def __getattr__(self, name):
        if name in self.missing_:
            raise AttributeError(f"{self.real_.__name__} of macOS has no {name}")
        return getattr(self.real_, name)
    def __setattr__(self, name, value):
        setattr(self.real_, name, value)

class Library(ctypes.CDLL):
    def __getattr__(self, name):
        if name in told["functions"]:
            raise AttributeError(f"libSystem has no {name} of Linux")
        return super().__getattr__(name)

import socket
own = {"socket": {"TCP_KEEPALIVE": socket.TCP_KEEPIDLE}}
seen = {name: Without(__import__(name), gone, own.get(name, {})) for name, gone in told["missing"].items()}
seen["sys"] = Without(sys, (), {"platform": "darwin"})
seen["ctypes"] = Without(ctypes, (), {"CDLL": Library})
real_import, real_stat = builtins.__import__, os.stat

def imported(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__") or ""
    spec = (globals or {}).get("__spec__")
    importer = spec.name if importer == "__main__" and spec is not None else importer
    if level == 0 and name in seen and importer.partition(".")[0] in told["ours"]:
        return seen[name]
    return real_import(name, globals, locals, fromlist, level)

def is_hidden(path):
    if not isinstance(path, (str, bytes, os.PathLike)):
        return False
    name = os.fsdecode(path)
    return any(name == top or name.startswith(top + "/") for top in HIDDEN)

def refuse(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and arguments and is_hidden(arguments[0]):
        raise FileNotFoundError(2, "No such file or directory", os.fsdecode(arguments[0]))

def stat(path, *rest, **named):
    if is_hidden(path):
        raise FileNotFoundError(2, "No such file or directory", os.fsdecode(path))
    return real_stat(path, *rest, **named)

builtins.__import__, os.stat = imported, stat
sys.addaudithook(refuse)
import runtime.common.system
runtime.common.system._TOOLS["PATH"] = os.path.join(os.path.dirname(__file__), "bin")
"""

PS = """#!/bin/sh
# -E of macOS's ps shows the environment, for which procps has the old form `e`.
[ "$2" = -E ] && exec /usr/bin/ps axeww -o pid= -o command=
exec /usr/bin/ps "$@"
"""


def install(folder: Path) -> dict[str, str]:
    """Write what every Python of the returned environment reads at its start, and Apple's tools."""
    tools = folder / "bin"
    tools.mkdir()
    pmset = f'case "$2" in\ntherm) cat <<"."\n{THERM}.\n;;\nbatt) cat <<"."\n{ON_MAINS}.\n;;\n'
    pmset += '*) echo " lowpowermode         0" ;;\nesac'
    written = {"sysctl": _told(SYSCTL), "sw_vers": _told(SW_VERS), "pmset": f"#!/bin/sh\n{pmset}\n", "ps": PS}
    for name, text in written.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    (tools / "cat").symlink_to("/usr/bin/cat")
    facts = {"missing": {name: missing(name) for name in MODULES}, "ours": OURS, "functions": C_FUNCTIONS}
    (folder / "darwin.json").write_text(json.dumps(facts))
    (folder / "sitecustomize.py").write_text(HOOK)
    return {**os.environ, "PYTHONPATH": str(folder), "FARM_RUNNER_SANDBOX": "off"}


def missing(module: str) -> list[str]:
    """Return the names that typeshed gives a module on Linux and not on macOS, under Python 3.13."""
    stubs = Path(mypy.__file__).parent / "typeshed" / "stdlib"
    on = {system: set(_names_of(stubs, module, system)) for system in ("linux", "darwin")}
    return sorted(on["linux"] - on["darwin"])


def _names_of(stubs: Path, module: str, system: str) -> Iterator[str]:
    found = next(path for path in (stubs / f"{module}.pyi", stubs / module / "__init__.pyi") if path.exists())
    yield from _names(stubs, ast.parse(found.read_text()).body, system)


def _names(stubs: Path, body: list[ast.stmt], system: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.If):
            holds = _holds(node.test, system)
            yield from _names(stubs, node.body if holds else node.orelse, system)
        elif isinstance(node, ast.ImportFrom):
            if node.names[0].name == "*" and node.module:
                yield from _names_of(stubs, node.module, system)
            else:
                yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _holds(test: ast.expr, system: str) -> bool:
    """Evaluate a condition of typeshed, which compares `sys.platform` and `sys.version_info`."""
    facts = {"platform": system, "version_info": (3, 13)}
    values = {"sys": type("sys", (), facts), "TYPE_CHECKING": True}
    return bool(eval(compile(ast.Expression(test), "typeshed", "eval"), values))  # mypy's own files


def _told(text: str) -> str:
    return f'#!/bin/sh\ncat <<"."\n{text}.\n'
