"""Reads the settings of this host under which its figures are valid, and tells which forbid to publish them.

Every reading is a text. A setting that cannot be read says so in one fixed way, because a reading is part of
the identity of an environment.
"""

import os
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from agent.machine.cgroups import ROOT, cpu_quota, text_of
from agent.machine.sensors.macos import mac_settings, why_mac_not_published

UNREADABLE: Final = "not readable"
"""The reading of a setting that this host does not show, as in most virtual machines."""

NO_QUOTA: Final = "none"
"""The CPU quota of a process that no control group limits."""

_CPUS: Final = "sys/devices/system/cpu"


def settings(cpus: Iterable[int], root: Path = ROOT) -> dict[str, str]:
    """Return the settings of the processors `cpus`: microcode, governor, turbo, SMT and CPU quota."""
    quota = cpu_quota(root)
    own = mac_settings() if sys.platform == "darwin" else {}
    return own | {
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


STEADY: Final = "performance"
"""The frequency governor that keeps a processor at its highest clock."""

LAYERS: Final = (
    "LD_PRELOAD", "LD_AUDIT", "OPENCL_LAYERS", "VK_INSTANCE_LAYERS",
    "POCL_DEBUG", "POCL_TRACING", "POCL_LEAVE_KERNEL_COMPILER_TEMP_FILES",
    "OCL_ICD_DEBUG", "OCL_ICD_ENABLE_TRACE", "CL_CONFIG_USE_VTUNE", "ZE_ENABLE_TRACING_LAYER",
    "ZE_ENABLE_VALIDATION_LAYER", "ZET_ENABLE_PROGRAM_DEBUGGING",
    "CUDA_LAUNCH_BLOCKING", "CUDA_INJECTION64_PATH", "AMD_LOG_LEVEL", "HSA_TOOLS_LIB",
    "MESA_DEBUG", "RUSTICL_DEBUG", "LP_DEBUG", "GALLIUM_TRACE", "GALLIUM_HUD", "GALLIUM_DDEBUG",
    "MALLOC_CHECK_", "MALLOC_PERTURB_", "PYTHONMALLOC", "PYTHONDEVMODE", "PYTHONTRACEMALLOC",
    "PYTHONPROFILEIMPORTTIME", "COVERAGE_PROCESS_START",
)  # fmt: skip
"""Variables that put a layer for debugging or capturing between a program and its libraries or driver."""


def why_not_published(
    cpus: Collection[int], environment: Mapping[str, str] = os.environ, root: Path = ROOT
) -> str | None:
    """Return what is to be changed first, in one line; None where nothing is.

    What this machine does not show cannot be refused; the trust verdict names it among what was not seen.
    """
    layer = next((name for name in LAYERS if environment.get(name)), None)
    if layer is not None:
        return f"{layer}={environment[layer]} is set, a layer that changes what is measured; unset it"
    found = settings(cpus, root)
    if found["cpu_quota"] != NO_QUOTA:
        return f"a control group limits the CPU to {found['cpu_quota']}; measure outside of it"
    if found["governor"] not in (STEADY, UNREADABLE):
        return f"the frequency governor is {found['governor']}; set it to {STEADY} (cpupower frequency-set)"
    if sys.platform == "darwin":
        return why_mac_not_published()
    if _on_battery(root):
        return "the machine runs on battery; connect it"
    return None


def _on_battery(root: Path) -> bool:
    supplies = sorted((root / "sys/class/power_supply").glob("*"))
    kinds = [(text_of(path / "type").strip(), path) for path in supplies]
    # A laptop's charger may be of the kind USB.
    online = [text_of(path / "online").strip() for kind, path in kinds if kind in ("Mains", "USB")]
    draining = any(
        kind == "Battery" and text_of(path / "status").strip() == "Discharging" for kind, path in kinds
    )
    return draining and "1" not in online
