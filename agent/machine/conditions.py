"""Reads the settings of this host under which its figures are valid, as the kernel reports them.

Every reading is a text. A setting that cannot be read says so in one fixed way, because a reading is part of
the identity of an environment.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from agent.machine.cgroups import ROOT, cpu_quota, text_of

UNREADABLE: Final = "not readable"
"""The reading of a setting that this host does not show, as in most virtual machines."""

NO_QUOTA: Final = "none"
"""The CPU quota of a process that no control group limits."""

_CPUS: Final = "sys/devices/system/cpu"


def settings(cpus: Iterable[int], root: Path = ROOT) -> dict[str, str]:
    """Return the settings of the processors `cpus`: microcode, governor, turbo, SMT and CPU quota."""
    quota = cpu_quota(root)
    return {
        "microcode": _microcode(root),
        "governor": governor(cpus, root),
        "turbo": _turbo(root),
        "smt": _switch(root / _CPUS / "smt/active"),
        "cpu_quota": NO_QUOTA if quota is None else f"{quota:.2f} CPUs",
    }


def governor(cpus: Iterable[int], root: Path = ROOT) -> str:
    """Return the frequency governor of these CPUs, all of them where they differ."""
    found = {text_of(root / _CPUS / f"cpu{cpu}/cpufreq/scaling_governor").strip() for cpu in cpus} - {""}
    return ", ".join(sorted(found)) or UNREADABLE


def _microcode(root: Path) -> str:
    lines = text_of(root / "proc/cpuinfo").splitlines()
    found = {
        value.strip()
        for name, _, value in (line.partition(":") for line in lines)
        if name.strip() == "microcode"
    }
    return ", ".join(sorted(found)) or UNREADABLE


def _turbo(root: Path) -> str:
    """Intel's driver tells whether turbo is off, others whether boost is on."""
    off = _switch(root / _CPUS / "intel_pstate/no_turbo")
    if off != UNREADABLE:
        return "off" if off == "on" else "on"
    return _switch(root / _CPUS / "cpufreq/boost")


def _switch(path: Path) -> str:
    return {"0": "off", "1": "on"}.get(text_of(path).strip(), UNREADABLE)
