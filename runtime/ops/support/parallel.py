"""A kernel's rows shared among threads: numpy releases the interpreter lock inside its loops and its BLAS.

Each thread gets a lane: some of the rows, and temporary memory of its own. BLAS itself stays on one thread
(`runtime/plan/blas.py`), so that its threads do not compete with the lanes for the same cores.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from itertools import pairwise

import numpy as np

from runtime.ops.support.context import Kernel, OpContext

_MOST_LANES = 64
"""Lanes of one kernel. Chosen: every lane holds its own temporary memory and Python closure, so that more, on
a machine of many cores, would cost memory for shares too small to be worth a thread."""

_WORTHWHILE = 1 << 20
"""Multiply-accumulates for each thread; with less, waking a thread takes longer than it saves."""


def lane_count(op: OpContext, work: int) -> int:
    """Return how many lanes a kernel of `work` multiply-accumulates is worth, at most its threads."""
    return max(1, min(op.num_threads, _MOST_LANES, work // _WORTHWHILE))


def shares(count: int, lanes: int) -> list[range]:
    """Split `count` items into at most `lanes` neighbouring, nearly equal ranges, none of them empty."""
    cuts = [count * i // lanes for i in range(lanes + 1)]
    return [range(a, b) for a, b in pairwise(cuts) if b > a]


def row_blocks(count: int, lanes: int, most: int) -> list[list[slice]]:
    """Share `count` rows among at most `lanes`, each lane's rows in blocks of at most `most`."""
    return [
        [slice(i, min(i + most, part.stop)) for i in range(part.start, part.stop, max(1, most))]
        for part in shares(count, lanes)
    ]


def together(lanes: Sequence[Kernel]) -> Kernel:
    """Return a kernel that runs all lanes at once. It raises what a lane raises."""
    if len(lanes) == 1:
        return lanes[0]
    if not lanes:
        return lambda: None
    first, *others = lanes
    pool = _pool(len(others))

    def run() -> None:
        pending = [pool.submit(lane) for lane in others]
        # The calling thread works too. Even where its lane fails it waits: the others still write to memory
        # that the next run, or the plan's arena, would reuse.
        try:
            first()
        finally:
            wait(pending)
        for done in pending:
            done.result()

    return run


@cache
def _pool(size: int) -> ThreadPoolExecutor:
    # numpy's error state is one per thread: in a new one overflow and NaN would be warnings again.
    return ThreadPoolExecutor(size, "runtime-lane", initializer=np.seterr, initargs=("ignore",))


# A forked child inherits the pools without their threads: work given to them would never start.
os.register_at_fork(after_in_child=_pool.cache_clear)
