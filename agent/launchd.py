"""The agent as a service of macOS: the property list by which launchd starts it, and starts it again.

The keys are described in launchd.plist(5).
"""

import os
import plistlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agent.processes.sandbox.boundary import SandboxSettings

LABEL: Final = "io.delegate-farm.agent"
"""Name of the service, as `launchctl` prints it."""

_SECRET: Final = "FARM_ENROL_TOKEN"  # noqa: S105  # the name of a variable
"""The one variable that stays out: the file would keep it, and an agent is enrolled once."""
_PASSED: Final = ("HOME", "PATH", "SSL_CERT_FILE", "XDG_CACHE_HOME", "XDG_STATE_HOME")
"""Variables that the agent is started with beside the farm's own."""
_STOP_S: Final = 60
"""Seconds that the agent may take to end, as in its unit for systemd."""
_PAUSE_S: Final = 10
"""Least seconds between two starts."""


def service(state: Path, environment: Mapping[str, str] = os.environ) -> bytes:
    """Return the property list of the agent of this installation, with the settings of this environment.

    Raises `ValueError` where an agent with these settings would not start.
    """
    SandboxSettings.from_environment(environment)
    log, program = str(state / "agent.log"), str(Path(sys.executable).with_name("farm-agent"))
    chosen = {
        name: value
        for name, value in environment.items()
        if name in _PASSED or (name.startswith("FARM_") and name != _SECRET)
    }
    keys: dict[str, Any] = {
        "Label": LABEL,
        "ProgramArguments": [program, "start", "--state", str(state)],
        "EnvironmentVariables": chosen,
        "WorkingDirectory": str(state),
        "StandardOutPath": log,
        "StandardErrorPath": log,
        "RunAtLoad": True,
        # It is started again unless it ended with 0.
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": _PAUSE_S,
        "ExitTimeOut": _STOP_S,
        # What the agent writes is for its user alone.
        "Umask": 0o077,
        # By default launchd bounds a service's use of CPU and disk, which a measurement would show.
        "ProcessType": "Interactive",
    }
    return plistlib.dumps(keys)
