"""Opens the files that a runner leaves in its folder: it may put anything under their names."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_left(path: Path) -> BufferedReader:
    """Open a regular file with one name. Raises `OSError` for a link, a pipe and anything else.

    A link could lead to a file that the agent may read and its runner may not, such as the agent's
    credentials; opening a pipe would wait for a writer for ever.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file with one name", path.name)
    return os.fdopen(descriptor, "rb")
