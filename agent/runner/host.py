"""Facts about this host and this software: what splits a series of results, and what is only recorded."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Final

from runtime.delegates.processor import processor
from runtime.tools.benchmark import MEASURING_VERSION

HOST_CPU: Final = "host-cpu"
"""Id of the host's CPU, and the exclusion group of everything that runs on it."""

_CPUINFO = Path("/proc/cpuinfo")
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_SOURCES = (".py", ".cl")
"""Suffixes of the files whose change may change an output or a time."""


def host_environment() -> dict[str, str]:
    """The fields of every device of this host that split a series.

    LiteRT's version is among them whether or not `litert` runs there: LiteRT makes the references.
    """
    return {
        "cpu": cpu_model(),
        "processor": processor().model,
        "processor_features": processor().features,
        "cpus": str(len(os.sched_getaffinity(0))),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "governor": governor(),
        "python": platform.python_version(),
        "numpy": package_version("numpy"),
        "litert": package_version("ai-edge-litert"),
        "runtime": runtime_identity(),
        "measuring": MEASURING_VERSION,
    }


def host_facts() -> dict[str, str]:
    """Facts that are recorded beside the environment and are never part of its id."""
    names = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    return {
        "hostname": platform.node(),
        "os": _os_name(),
        "memory_bytes": str(names[0] * names[1]),
        "cpus_installed": str(os.cpu_count() or 0),
    }


def cpu_model() -> str:
    """The CPU's name as the kernel gives it."""
    text = _CPUINFO.read_text() if _CPUINFO.exists() else ""
    named = re.search(r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", text, re.MULTILINE)
    return " ".join(named.group(1).split()) if named else platform.processor() or platform.machine()


def governor() -> str:
    """The frequency governor of the first CPU."""
    try:
        return _GOVERNOR.read_text().strip()
    except OSError:
        return "not controlled here"


def package_version(name: str) -> str:
    """Installed version of a distribution, or `not installed`."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


@functools.cache
def runtime_identity() -> str:
    """Version of the runtime and a hash of its sources: an edited kernel starts a new series."""
    digest = hashlib.sha256()
    root = Path(str(files("runtime")))
    for path in sorted(p for p in root.rglob("*") if p.suffix in _SOURCES):
        digest.update(f"{path.relative_to(root)}\0".encode())
        digest.update(path.read_bytes())
    return f"{version('delegate-farm')}+{digest.hexdigest()[:10]}"


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform()
