"""Named points where a test kills this process: `FARM_FAILPOINT=NAME@FILE`, once per FILE. Unset: never.

FILE is created just before the kill, so that the process that takes over passes the same point alive.
"""

import os
import signal
from typing import Final

VARIABLE: Final = "FARM_FAILPOINT"

_NAME, _, _FILE = os.environ.get(VARIABLE, "").partition("@")


def reached(name: str) -> None:
    """Kill this process with SIGKILL where `name` is the chosen point and FILE does not exist yet."""
    if name == _NAME and _first():
        os.kill(os.getpid(), signal.SIGKILL)


def _first() -> bool:
    try:
        os.close(os.open(_FILE, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    return True
