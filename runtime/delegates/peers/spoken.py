"""Captures native code's text on the standard error output, where some libraries alone give reasons."""

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_ERRORS = 2
"""The file descriptor of the standard error output (POSIX)."""


class Spoken:
    """The text that was written in a block; empty until the block has ended."""

    text: str = ""


@contextmanager
def spoken() -> Iterator[Spoken]:
    """Keep the block's text on the standard error output, which is written there all the same.

    Where the output is a file the text is read back from it, so that the last words of a process that a
    library aborts stay in that file. Elsewhere the text passes through a file of its own.
    """
    found = Spoken()
    sys.stderr.flush()
    log = _log_file()
    if log is None:
        with _diverted(found):
            yield found
        return
    start = os.fstat(log).st_size
    try:
        yield found
    finally:
        sys.stderr.flush()
        found.text = os.pread(log, os.fstat(log).st_size - start, start).decode(errors="replace")
        os.close(log)


def _log_file() -> int | None:
    """Open the standard error output for reading; None if it is not a file that may be read."""
    with suppress(OSError):
        if stat.S_ISREG(os.fstat(_ERRORS).st_mode):
            return os.open(f"/proc/self/fd/{_ERRORS}", os.O_RDONLY)
    return None


@contextmanager
def _diverted(found: Spoken) -> Iterator[None]:
    with tempfile.TemporaryFile() as file:
        try:
            kept = os.dup(_ERRORS)
        except OSError:
            yield  # a process without a standard error output hears nothing
            return
        os.dup2(file.fileno(), _ERRORS)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, _ERRORS)
            file.seek(0)
            content = file.read()
            found.text = content.decode(errors="replace")
            with suppress(OSError), os.fdopen(kept, "wb") as output:
                output.write(content)
