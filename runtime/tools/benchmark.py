"""The measured loop of one process: init, first, warm-up, invoke; with its first and its last outputs.

Every sample is `e2e`: input arrays in host memory -> all outputs readable in host memory
(`set_tensor` of every input, `invoke`, `get_tensor` of every output), by `perf_counter_ns`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.base import Array, LoadedModel
from runtime.tools import memory
from runtime.tools.agreement import OutputFacts
from runtime.tools.inputs import InputPool, InputRule, make_pool
from runtime.tools.loading import Opened, Opener, output_facts
from runtime.tools.noise import Usage, clocks_mhz, host_pressure, noise_flags
from runtime.tools.samples import median_interval

MEASURING_VERSION = "2"
"""A change of what a figure means raises this version, which cuts every series of results."""


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """Counts of one process: at least `min_runs` and `min_seconds`, at most `max_runs` and `max_seconds`.

    `floor_runs` are done even when `max_seconds` is over.
    """

    warmup_runs: int
    warmup_seconds: float
    min_runs: int
    max_runs: int
    min_seconds: float
    max_seconds: float
    floor_runs: int = 1


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """What one process measured; times in ns in the order of measurement.

    `outputs` of a measured process are those of the first invoke (set 0) and of the last timed one (set
    `last_set`), of a cold one those of every set. Memory is the growth of VmHWM from just before the model
    was loaded, without the bytes of the input pool.
    """

    init_ns: int
    first_ns: int
    memory_before_bytes: int
    memory_peak_bytes: int
    delegation: Any | None
    settings: Mapping[str, str]
    output_facts: tuple[OutputFacts, ...]
    outputs: tuple[tuple[Array, ...], ...]
    last_set: int = 0
    warmup_ns: tuple[int, ...] = ()
    invoke_ns: tuple[int, ...] = ()
    flags: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def measure(
    opener: Opener,
    path: str,
    model_sha256: str,
    plan: LoopPlan,
    rules: Mapping[str, InputRule] | None = None,
    on_phase: Callable[[str], None] = lambda _phase: None,
) -> ProcessResult:
    """Measure one model in this process, which should be fresh and run nothing else.

    `on_phase` is called with the name of the next phase, outside every timed region. Raises what
    `Opener.open` and `make_pool` raise.
    """
    start = _Start.of(opener, path, model_sha256, rules, on_phase)
    loop = start.loop
    on_phase("warm-up")
    warmup_ns, _ = loop.repeat(_warm_up(plan))
    on_phase("invoke")
    pressure = host_pressure()
    usage = Usage.now()
    invoke_ns, last_set = loop.repeat(plan)
    spent = Usage.now() - usage
    return start.result(
        warmup_ns=tuple(warmup_ns.tolist()),
        invoke_ns=tuple(invoke_ns.tolist()),
        outputs=(start.first_outputs, loop.outputs),
        last_set=last_set,
        flags=noise_flags(invoke_ns, spent, _timer_overhead_ns()),
        facts={
            "stop": _stop_reason(invoke_ns, plan),
            "p50_interval_ns": _median_interval(invoke_ns),
            **pressure,
            **spent.facts(),
        },
    )


def start_cold(
    opener: Opener,
    path: str,
    model_sha256: str,
    rules: Mapping[str, InputRule] | None = None,
    on_phase: Callable[[str], None] = lambda _phase: None,
) -> ProcessResult:
    """Start one model where nothing is cached: `init` and `first`, then every other input set once, untimed.

    Its outputs are those of a freshly opened model, in order; they are what is judged. Raises as `measure`.
    """
    start = _Start.of(opener, path, model_sha256, rules, on_phase)
    on_phase("outputs")
    others = [start.loop.once(k)[1] for k in range(1, start.loop.sets)]
    return start.result(outputs=(start.first_outputs, *others))


@dataclass(frozen=True, slots=True)
class _Start:
    """A model that was opened and invoked once, and what that took."""

    opened: Opened
    pool: InputPool
    loop: _Loop
    init_ns: int
    first_ns: int
    first_outputs: tuple[Array, ...]
    before_bytes: int
    init_peak_bytes: int
    memory_was_reset: bool

    @classmethod
    def of(
        cls,
        opener: Opener,
        path: str,
        model_sha256: str,
        rules: Mapping[str, InputRule] | None,
        on_phase: Callable[[str], None],
    ) -> _Start:
        on_phase("init")
        was_reset = memory.reset_peak()
        before = memory.resident_bytes() if was_reset else memory.peak_bytes()
        started = time.perf_counter_ns()
        opened = opener.open(path, rules)
        init_ns = time.perf_counter_ns() - started
        init_peak = memory.peak_bytes()

        pool = make_pool(opened.model.get_input_details(), model_sha256, rules)
        memory.reset_peak()
        loop = _Loop(opened.model, pool)
        on_phase("first")
        first_ns, first_outputs = loop.once(0)
        return cls(opened, pool, loop, init_ns, first_ns, first_outputs, before, init_peak, was_reset)

    def result(self, *, facts: Mapping[str, str] | None = None, **measured: Any) -> ProcessResult:
        """What this process measured: `measured` are the fields that differ between kinds of processes."""
        peak = max(self.init_peak_bytes, memory.peak_bytes() - self.pool.nbytes)
        return ProcessResult(
            init_ns=self.init_ns,
            first_ns=self.first_ns,
            memory_before_bytes=self.before_bytes,
            memory_peak_bytes=max(0, peak - self.before_bytes),
            delegation=self.opened.delegation,
            settings=dict(self.opened.describe()),
            output_facts=output_facts(self.opened.model),
            facts={
                "pool_sha256": self.pool.sha256,
                "clocks_mhz": clocks_mhz(),
                "memory_peak_reset": "yes" if self.memory_was_reset else "no: growth is a lower bound",
                **(facts or {}),
            },
            **measured,
        )


def _warm_up(plan: LoopPlan) -> LoopPlan:
    """The warm-up as a loop plan: both its counts are minima, three times its seconds the cap."""
    return LoopPlan(
        warmup_runs=0,
        warmup_seconds=0.0,
        min_runs=plan.warmup_runs,
        max_runs=plan.max_runs,
        min_seconds=plan.warmup_seconds,
        max_seconds=max(3.0 * plan.warmup_seconds, 1.0),
        floor_runs=min(1, plan.warmup_runs),
    )


class _Loop:
    """Invokes a model over a rotating pool. Nothing is parsed, logged or looked up inside a timed region."""

    def __init__(self, model: LoadedModel, pool: InputPool) -> None:
        self._model = model
        self._pool = pool
        self._input_indices = [int(d["index"]) for d in model.get_input_details()]
        self._output_indices = [int(d["index"]) for d in model.get_output_details()]
        self.outputs: tuple[Array, ...] = ()

    @property
    def sets(self) -> int:
        """The number of input sets."""
        return len(self._pool.sets)

    def once(self, k: int) -> tuple[int, tuple[Array, ...]]:
        """Time one invoke of input set `k`; return ns and the outputs."""
        model, indices = self._model, self._output_indices
        feeds = list(zip(self._input_indices, self._pool.sets[k], strict=True))
        started = time.perf_counter_ns()
        for index, value in feeds:
            model.set_tensor(index, value)
        model.invoke()
        outputs = tuple([model.get_tensor(i) for i in indices])
        return time.perf_counter_ns() - started, outputs

    def repeat(self, plan: LoopPlan) -> tuple[NDArray[np.int64], int]:
        """Time invokes until the plan is fulfilled; return samples in ns, and the input set of the last."""
        samples = np.zeros(plan.max_runs, dtype=np.int64)
        model, indices, clock = self._model, self._output_indices, time.perf_counter_ns
        feeds = [list(zip(self._input_indices, values, strict=True)) for values in self._pool.sets]
        sets = len(feeds)
        n = 0
        outputs: tuple[Array, ...] = self.outputs
        with _collector_off():
            began = now = clock()
            while _goes_on(plan, n, (now - began) / 1e9):
                feed = feeds[n % sets]
                started = clock()
                for index, value in feed:
                    model.set_tensor(index, value)
                model.invoke()
                outputs = tuple([model.get_tensor(i) for i in indices])
                now = clock()
                samples[n] = now - started
                n += 1
        self.outputs = outputs
        return samples[:n].copy(), max(0, n - 1) % sets


def _goes_on(plan: LoopPlan, runs: int, seconds: float) -> bool:
    if runs >= plan.max_runs:
        return False
    if runs < plan.floor_runs:
        return True
    return seconds < plan.max_seconds and (runs < plan.min_runs or seconds < plan.min_seconds)


def _stop_reason(samples: NDArray[np.int64], plan: LoopPlan) -> str:
    if len(samples) >= plan.max_runs:
        return "max_runs"
    return "fulfilled" if len(samples) >= plan.min_runs else "max_seconds"


def _median_interval(samples: NDArray[np.int64]) -> str:
    """Return the 95 % order-statistic interval of this process's median, `low..high` in ns."""
    ranks = median_interval(len(samples))
    ordered = np.sort(samples)
    return "..".join("unbounded" if rank is None else str(ordered[rank - 1]) for rank in ranks)


@contextmanager
def _collector_off() -> Iterator[None]:
    """Switch Python's garbage collector off in the block: a collection would disturb some of the samples."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _timer_overhead_ns(rounds: int = 1000) -> float:
    """Return the median time between two reads of the clock in ns."""
    reads = [time.perf_counter_ns() for _ in range(rounds)]
    return float(np.median(np.diff(reads)))
