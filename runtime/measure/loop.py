"""Invoke an opened model over a rotating pool of inputs, and take the time of each invoke.

Every sample is `e2e`: input arrays in host memory -> all outputs readable in host memory
(`set_tensor` of every input, `invoke`, `get_tensor` of every output), by `perf_counter_ns`.
"""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.base import Array, LoadedModel
from runtime.measure.honesty import Waited
from runtime.measure.inputs import InputPool


@dataclass(frozen=True, slots=True)
class Times:
    """Invokes in their order, in ns: how long each took, and when it started on CLOCK_MONOTONIC."""

    invoke_ns: NDArray[np.int64]
    start_ns: NDArray[np.int64]


class Loop:
    """Invokes a model over a rotating pool. Nothing is parsed, logged or looked up inside a timed region."""

    def __init__(self, model: LoadedModel, pool: InputPool) -> None:
        self._model = model
        self._pool = pool
        self._input_indices = [int(d["index"]) for d in model.get_input_details()]
        self._output_indices = [int(d["index"]) for d in model.get_output_details()]
        self._feeds = [list(zip(self._input_indices, values, strict=True)) for values in pool.sets]
        self._timed = 0
        self.outputs: tuple[Array, ...] = ()

    @property
    def sets(self) -> int:
        """The number of input sets."""
        return len(self._pool.sets)

    @property
    def last_set(self) -> int:
        """The input set of the last invoke of `run`, whose outputs are in `outputs`."""
        return max(0, self._timed - 1) % self.sets

    def once(self, k: int) -> tuple[int, tuple[Array, ...]]:
        """Time one invoke of input set `k`; return ns and the outputs."""
        model, indices = self._model, self._output_indices
        feeds = self._feeds[k]
        started = time.perf_counter_ns()
        for index, value in feeds:
            model.set_tensor(index, value)
        model.invoke()
        outputs = tuple([model.get_tensor(i) for i in indices])
        return time.perf_counter_ns() - started, outputs

    def once_and_again(self, k: int) -> tuple[Waited, tuple[Array, ...]]:
        """Invoke input set `k` and read the outputs twice: the second time, nothing is left to wait for."""
        started = time.perf_counter_ns()
        for index, value in self._feeds[k]:
            self._model.set_tensor(index, value)
        self._model.invoke()
        invoked = time.perf_counter_ns()
        outputs = tuple([self._model.get_tensor(i) for i in self._output_indices])
        read = time.perf_counter_ns()
        for i in self._output_indices:
            self._model.get_tensor(i)
        return Waited(read - started, read - invoked, time.perf_counter_ns() - read), outputs

    def run(self, runs: int, untimed: int = 0) -> Times:
        """Time so many invokes, behind `untimed` ones that take the sets before theirs.

        The timed invokes of all calls are counted through: number i takes input set i mod `sets`.
        """
        samples = np.zeros(runs, dtype=np.int64)
        starts = np.zeros(runs, dtype=np.int64)
        # Local names: attributes would be looked up within the timed region.
        model, indices, clock = self._model, self._output_indices, time.perf_counter_ns
        feeds, sets, first = self._feeds, len(self._feeds), self._timed
        outputs = self.outputs
        with collector_off(collect=False):
            for n in range(-untimed, runs):
                # Python's remainder is never negative: in front of the first set comes the last.
                feed = feeds[(first + n) % sets]
                started = clock()
                for index, value in feed:
                    model.set_tensor(index, value)
                model.invoke()
                outputs = tuple([model.get_tensor(i) for i in indices])
                took = clock() - started
                if n >= 0:
                    samples[n] = took
                    starts[n] = started
        self._timed += runs
        # After a warm-up alone the outputs remain those of the last
        # timed invoke, to which `last_set` belongs.
        if runs:
            self.outputs = outputs
        return Times(samples, starts)


@contextmanager
def collector_off(*, collect: bool = True) -> Iterator[None]:
    """Switch Python's garbage collector off in the block: a collection would disturb some of the samples.

    `collect`: once before it; that takes tens of milliseconds, too long in front of each slice.
    """
    was_on = gc.isenabled()
    if collect:
        gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def timer_overhead_ns(rounds: int = 1000) -> float:
    """Return the median time between two reads of the clock in ns."""
    reads = [time.perf_counter_ns() for _ in range(rounds)]
    return float(np.median(np.diff(reads)))
