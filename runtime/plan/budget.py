"""Bounds the memory of a model: a larger request is refused before anything is allocated.

Linux grants memory that it does not have, and kills the process that uses it. A file of a few bytes can ask
for any size, so sizes are counted first.
"""

import os
from contextlib import suppress
from functools import cache
from pathlib import Path

from runtime.errors import OutOfMemoryError

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@cache
def machine_bytes() -> int:
    """Return the memory of this machine, or of the container that limits it, in bytes."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in _CGROUP_LIMITS:
        # Version 2 of control groups says "max" where there is no limit.
        with suppress(OSError, ValueError):
            found.append(int(Path(path).read_text(encoding="ascii")))
    return min(found)


class MemoryBudget:
    """Counts the bytes that all plans of one interpreter hold together, up to `limit`, or the machine's."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = machine_bytes() if limit is None else limit
        self._reserved = 0

    def reserve(self, size: int) -> None:
        """Count `size` more bytes. Raises `OutOfMemoryError` beyond the limit."""
        if self._reserved + size > self.limit:
            mib = (self._reserved + size) >> 20
            raise OutOfMemoryError(
                f"the model's tensors need {mib} MiB at once; this machine has {self.limit >> 20} MiB"
            )
        self._reserved += size

    def release(self, size: int) -> None:
        """Free `size` bytes that `reserve` counted."""
        self._reserved -= size


def out_of_memory(error: MemoryError) -> OutOfMemoryError:
    """Build the error for an allocation that the system refused: this process cannot hold the model."""
    return OutOfMemoryError(f"the model needs more memory than is available: {error}")
