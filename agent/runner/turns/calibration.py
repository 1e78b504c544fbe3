"""Runs a piece of work of a known size between rounds: a covariate of the measurements beside it.

It is recorded, and compared with the device's own history before a block that may wait for a quiet machine;
no figure is ever scaled by it.
"""

import time
from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from agent.machine.workload import Reading

_SIDE: Final = 448
"""Rows of the square float32 matrices that are multiplied, which takes about 5 ms on one core."""

_STREAMED: Final = 1024 * 1024
"""Float32 values, 4 MiB, that are copied: more than a core's own caches hold."""


def read() -> Reading:
    """Run the workload once and return its times."""
    left, right, product, source, target = _operands()
    return Reading(
        _timed(lambda: np.matmul(left, right, out=product)), _timed(lambda: np.copyto(target, source))
    )


@cache
def _operands() -> tuple[NDArray[np.float32], ...]:
    square = np.full((_SIDE, _SIDE), 0.5, np.float32)
    stream = np.full(_STREAMED, 0.5, np.float32)
    found = (square, square.copy(), np.empty_like(square), stream, np.empty_like(stream))
    # Once, so that no first touch of a page and no loading of a library is in a reading.
    np.matmul(found[0], found[1], out=found[2])
    np.copyto(found[4], found[3])
    return found


def _timed(work: Callable[[], object]) -> int:
    started = time.perf_counter_ns()
    work()
    return time.perf_counter_ns() - started
