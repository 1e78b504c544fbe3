"""The environment of every process that an agent starts (agent/wire/environment.py has the lists)."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agent.wire.environment import LOADER, PYTHON, RUNNER, SYSTEM, chosen

_LINK: Final = (
    "SSL_CERT_FILE", "SSL_CERT_DIR",
    "FARM_HEARTBEAT_S", "FARM_WATCHDOG_S", "FARM_RESEND_S", "FARM_AGENT_CACHE_BYTES", "FARM_FAILPOINT",
)  # fmt: skip
"""What the link needs besides, which alone uses the network: certificates and its own settings. It connects
to the farm directly, by no proxy. Its secrets are in the state folder and never in a variable."""

_CACHES = {
    "FARM_CACHE_DIR": "farm",
    "XDG_CACHE_HOME": "xdg",
    "POCL_CACHE_DIR": "pocl",
    "CUDA_CACHE_PATH": "cuda",
    "AMD_COMGR_CACHE_DIR": "comgr",
    "NEO_CACHE_DIR": "neo",
    "MESA_SHADER_CACHE_DIR": "mesa",
}
"""Every program cache that we know of, as variable → folder: ours, pyopencl's (under XDG_CACHE_HOME) and the
drivers'. A cache that is missing here would make the cold start of an attempt a warm one."""


def for_runner(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a runner, of the processes that it starts, and of the probe."""
    return chosen(inherited, RUNNER)


def for_link(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of the process that speaks with the broker and the endpoint."""
    return chosen(inherited, (*SYSTEM, *LOADER, *PYTHON, *_LINK))


def own_caches(folder: Path) -> dict[str, str]:
    """Variables by which every program cache lies in a folder, where it may be written."""
    found = {}
    for variable, name in _CACHES.items():
        cache = folder / name
        cache.mkdir(parents=True, exist_ok=True)
        found[variable] = str(cache)
    return found


def farm_cache(environment: Mapping[str, str]) -> Path:
    """Return the folder of the farm's own program cache, which keeps what a check of a device found."""
    # As `cache_folder` of the GPU delegate has it, which only runners import.
    if chosen_folder := environment.get("FARM_CACHE_DIR"):
        return Path(chosen_folder)
    caches = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", ".")) / ".cache"
    return Path(caches) / "delegate-farm"
