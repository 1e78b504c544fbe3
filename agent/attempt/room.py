"""A full disk: it fails or delays the attempt that needs the room, and no other one."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager


class NoRoomError(OSError):
    """The disk is full; `strerror` says what does not fit, and what to do."""


@contextmanager
def needing_room(what: str) -> Iterator[None]:
    """Raise `NoRoomError` for `what` where the block meets a full disk; other errors stay as they are."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise NoRoomError(error.errno, f"no space left for {what}; free some") from error
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
            raise
        raise NoRoomError(errno.ENOSPC, f"no space left for {what}; free some") from error
