"""Named points where a test lets this process die: `FARM_FAILPOINT=NAME@FILE`, once per FILE. Unset: nothing.

FILE is created at the moment of death, so that the process that takes over passes the same point alive.
"""

from __future__ import annotations

import os
import signal
from typing import Final

VARIABLE: Final = "FARM_FAILPOINT"

_NAME, _, _FILE = os.environ.get(VARIABLE, "").partition("@")


def reached(name: str) -> None:
    """End as by SIGKILL where `name` is the chosen point and nobody has died there yet."""
    if name == _NAME and _first():
        os.kill(os.getpid(), signal.SIGKILL)


def _first() -> bool:
    try:
        os.close(os.open(_FILE, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    return True
