"""Lets a watcher outlast a database, or a farm, that is away for a while, for example while it restarts."""

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from orchestrator.errors import UnreachableError

_AGAIN_EVERY_S: Final = 1.0
"""Seconds between two tries. Smaller notices the database's return sooner, larger asks it less often."""

Found = TypeVar("Found")

log = logging.getLogger(__name__)


class DatabaseWait:
    """Repeats a read until the database answers. It says once that it waits, and once that it is over."""

    def __init__(self, say: Callable[[str], None] = log.warning, what: str = "the database") -> None:
        """`say` gets each line for the user; `what` is to answer."""
        self._say = say
        self._what = what

    def __call__(self, read: Callable[[], Found]) -> Found:
        """Return what `read` returns. Only Ctrl-C ends the waiting; `read` must bear being repeated."""
        waits = False
        while True:
            try:
                found = read()
            except UnreachableError as error:
                if not waits:
                    self._say(f"{self._what} does not answer; waiting, Ctrl-C ends it ({error})")
                waits = True
                time.sleep(_AGAIN_EVERY_S)
            else:
                if waits:
                    self._say(f"{self._what} answers again")
                return found
