"""Pauses Python's collector of reference cycles while many lasting objects are made."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Make many objects without the collector, which would walk all of them again and again: of the largest
    campaign that took as long as reading it, and none of them is garbage.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
