"""Names whoever runs this process."""

from __future__ import annotations

import getpass
import os
import socket


def account() -> str:
    """`USER@HOST`, by the operating system; no user of the endpoint has a name with an @."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # an account without an entry in the system's list, as in many containers
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"
