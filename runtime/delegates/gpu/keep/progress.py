"""Announces a long preparation, so that nobody takes the program for one that hangs."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import perf_counter
from typing import Final

_LOG = logging.getLogger(__name__)

PATIENCE_S: Final = 5.0
"""Seconds until the first line about a preparation, and between two lines. Most preparations are over before;
smaller tells users about what they do not notice, larger leaves them in doubt for longer."""


class Announced:
    """The present task; the announcing thread reads it."""

    def __init__(self, doing: str) -> None:
        self.doing = doing


@contextmanager
def announced(doing: str) -> Iterator[Announced]:
    """Log a warning every `PATIENCE_S` seconds, with `doing` and the time since the block began.

    The block may change `doing` as it gets on.
    """
    announcement, over, start = Announced(doing), Event(), perf_counter()

    def speak() -> None:
        while not over.wait(PATIENCE_S):
            elapsed = perf_counter() - start
            _LOG.warning("gpu delegate: %s, for %.0f s now", announcement.doing, elapsed)

    # A daemon: a block that a signal ends must not keep the process alive.
    speaker = Thread(target=speak, name="gpu-progress", daemon=True)
    speaker.start()
    try:
        yield announcement
    finally:
        over.set()
        speaker.join()
