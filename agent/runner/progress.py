"""Turns the runtime's messages about a long preparation into the attempt's phase, which everybody can see."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Told(logging.Handler):
    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())


@contextmanager
def told(tell: Callable[[str], None]) -> Iterator[None]:
    """Within the block every warning of a delegate's loggers is also handed to `tell`.

    Which operators stay on the CPU, of which the interpreter warns, is in the result and is no phase.
    """
    handler, logger = _Told(tell), logging.getLogger("runtime.delegates")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
