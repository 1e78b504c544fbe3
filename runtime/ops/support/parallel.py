"""Sharing a kernel's rows among threads: numpy releases the interpreter lock inside its loops and its BLAS.

Each thread gets a lane: some of the rows, and temporary memory of its own. BLAS itself stays on
one thread (`runtime/plan/blas.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from itertools import pairwise
from typing import ParamSpec

import numpy as np

from runtime.ops.support.context import OpContext

_Arguments = ParamSpec("_Arguments")

_MOST_LANES = 64
_WORTHWHILE = 1 << 20
"""Multiply-accumulates for each thread; with less, waking a thread takes longer than it saves."""


def lane_count(op: OpContext, work: int) -> int:
    """How many lanes a kernel of `work` multiply-accumulates is worth, at most the threads it may use."""
    return max(1, min(op.num_threads, _MOST_LANES, work // _WORTHWHILE))


def shares(count: int, lanes: int) -> list[range]:
    """`count` items in at most `lanes` neighbouring, nearly equal ranges, none of them empty."""
    cuts = [count * i // lanes for i in range(lanes + 1)]
    return [range(a, b) for a, b in pairwise(cuts) if b > a]


def row_blocks(count: int, lanes: int, most: int) -> list[list[slice]]:
    """`count` rows shared among at most `lanes`, each lane's in blocks of at most `most`."""
    return [
        [slice(i, min(i + most, part.stop)) for i in range(part.start, part.stop, max(1, most))]
        for part in shares(count, lanes)
    ]


def together(lanes: Sequence[Callable[_Arguments, None]]) -> Callable[_Arguments, None]:
    """All lanes at once, each on a thread, with the same arguments. Raises what a lane raises."""
    if len(lanes) == 1:
        return lanes[0]
    if not lanes:
        return lambda *_args, **_kwargs: None
    first, *others = lanes
    pool = _pool(len(others))

    def run(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        pending = [pool.submit(lane, *args, **kwargs) for lane in others]
        try:
            first(*args, **kwargs)
        finally:
            wait(pending)
        for done in pending:
            done.result()

    return run


@cache
def _pool(size: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(size, "runtime-lane", initializer=np.seterr, initargs=("ignore",))


os.register_at_fork(after_in_child=_pool.cache_clear)
