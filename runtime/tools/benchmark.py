"""The measured loop of one process: init, first, warm-up, invoke; with its first and its last outputs.

Every sample is `e2e`: input arrays in host memory -> all outputs readable in host memory
(`set_tensor` of every input, `invoke`, `get_tensor` of every output), by `perf_counter_ns`.
"""

from __future__ import annotations

import gc
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.base import Array, LoadedModel
from runtime.stages import Stage
from runtime.tools import memory
from runtime.tools.agreement import OutputFacts
from runtime.tools.device_times import DeviceTimes, device_times
from runtime.tools.honesty import NEW_LEAST, NEW_LEAST_NS, NEW_SHARE, Waited, cached, early_return
from runtime.tools.inputs import InputPool, InputRule, make_pool
from runtime.tools.loading import Opener, output_facts
from runtime.tools.loop_plan import FEWEST_WARMUP, Calibration, LoopPlan, exactly
from runtime.tools.noise import Usage, clocks_mhz, host_pressure, noise_flags
from runtime.tools.outputs import is_stateful, steps
from runtime.tools.samples import median_interval
from runtime.tools.start import Start
from runtime.tools.stopping import GROWTH, WINDOW, Precision, Stop, is_steady

MEASURING_VERSION = "3"
"""A change of what a figure means raises this version, which cuts every series of results."""


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """What one process measured; times in ns in the order of measurement.

    `start_ns` has the start of each timed invoke, from the begin of the loop; invoke i ran input set
    i mod `input_sets`.

    `outputs` of a measured process are those of the first invoke (set 0) and of the last timed one (set
    `last_set`), of a cold one those of every set. Memory is the growth of VmHWM from just before the model
    was loaded, without the bytes of the input pool.

    `stages_ns` are parts of `init_ns`. `memory_bytes` is what the process had grown by once the file was read
    (`load`), ready to invoke (`ready`) and behind the timed loop (`steady`, without the input pool), and what
    the delegate holds on its `device`; `unseen` says why one of all these is missing. `device` is what its
    device told in a pass of its own.
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
    start_ns: tuple[int, ...] = ()
    input_sets: int = 0
    flags: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    stages_ns: Mapping[Stage, int] = field(default_factory=dict)
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    unseen: Mapping[str, str] = field(default_factory=dict)
    device: DeviceTimes = field(default_factory=DeviceTimes)


def measure(
    opener: Opener,
    path: str,
    model_sha256: str,
    plan: LoopPlan,
    rules: Mapping[str, InputRule] | None = None,
    on_phase: Callable[[str], None] = lambda _phase: None,
    watched: AbstractContextManager[object] | None = None,
    warmup_runs: int | None = None,
) -> ProcessResult:
    """Measure one model in this process, which should be fresh and run nothing else.

    `warmup_runs`: as many as a calibration found, in place of those of the plan. `on_phase` is called with
    the name of the next phase, outside every timed region. `watched` is entered just before the timed loop
    and left just after it. Raises what `Opener.open` and `make_pool` raise.
    """
    begun = _Begun.of(opener, path, model_sha256, rules, on_phase)
    loop = begun.loop
    on_phase("warm-up")
    warmup_ns = loop.repeat(plan.warm_up if warmup_runs is None else exactly(warmup_runs)).invoke_ns
    on_phase("invoke")
    pressure = host_pressure()
    with watched or nullcontext():
        usage = Usage.now()
        timed = loop.repeat(plan)
        spent = Usage.now() - usage
    # Before new inputs are made, which are no part of what the model needs.
    peak_bytes, steady_bytes, outputs = begun.peak_bytes(), begun.steady_bytes(), loop.outputs
    noise = noise_flags(timed.invoke_ns, spent, _timer_overhead_ns())
    on_phase("new inputs")
    remembers = begun.remembers(model_sha256, rules, timed.invoke_ns.tolist())
    on_phase("device times")
    device = device_times(begun.start.opened, int(timed.invoke_ns.sum()))
    return begun.result(
        peak_bytes,
        steady_bytes,
        warmup_ns=tuple(warmup_ns.tolist()),
        invoke_ns=tuple(timed.invoke_ns.tolist()),
        start_ns=tuple(timed.start_ns.tolist()),
        input_sets=loop.sets,
        outputs=(begun.first_outputs, outputs),
        last_set=max(0, len(timed.invoke_ns) - 1) % loop.sets,
        flags=noise if remembers is None else (*noise, remembers),
        device=device,
        facts={
            "stop": timed.stop,
            "p50_interval_ns": _median_interval(timed.invoke_ns),
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
    plan: LoopPlan | None = None,
) -> ProcessResult:
    """Start one model where nothing is cached: `init` and `first`, then every other input set once, untimed.

    Its outputs are those of a freshly opened model, in order; they are what is judged, and once more those of
    a model that keeps state, after `runtime.tools.outputs.LATER` steps. With a `plan`, it then
    finds the warm-up of the processes that follow (`Calibration`, in `facts`). Raises as `measure`.
    """
    begun = _Begun.of(opener, path, model_sha256, rules, on_phase)
    on_phase("outputs")
    others = [begun.loop.once_and_again(k) for k in range(1, begun.loop.sets)]
    early = early_return([waited for waited, _ in others])
    peak_bytes, facts = begun.peak_bytes(), {}
    later = _later(begun.loop) if is_stateful(path) else []
    if plan is not None:
        on_phase("calibration")
        run_ns = min((waited.whole_ns for waited, _ in others), default=begun.first_ns)
        facts = _calibrated(begun.loop, plan, run_ns).facts()
    return begun.result(
        peak_bytes,
        outputs=(begun.first_outputs, *(outputs for _, outputs in others), *later),
        flags=() if early is None else (early,),
        facts=facts,
    )


def _later(loop: Loop) -> list[tuple[Array, ...]]:
    """Go on with a model that has run every input set once; return the outputs that are judged again."""
    left = list(steps(is_stateful=True))[loop.sets :]
    found = [(is_judged, loop.once(step % loop.sets)[1]) for step, is_judged in left]
    return [outputs for is_judged, outputs in found if is_judged]


def _calibrated(loop: Loop, plan: LoopPlan, run_ns: int) -> Calibration:
    """Run a model until it is steady, or for as long as its warm-up may take; a run takes about `run_ns`."""
    warm_up = plan.warm_up
    if warm_up.min_runs == 0 and warm_up.min_seconds == 0.0:
        return Calibration(0, "not looked for: no warm-up was asked for")
    least_s = FEWEST_WARMUP * run_ns / 1e9
    if least_s > warm_up.max_seconds:
        slow = f"{FEWEST_WARMUP} runs take {least_s:.1f} s, a warm-up at most {warm_up.max_seconds:g} s"
        return Calibration.of(plan, 0, run_ns, f"not looked for: {slow}")
    last, runs = np.zeros(0, np.int64), 0
    # By the clock, not by the sum of the runs: of small models, looking takes longer than running.
    until = time.perf_counter() + warm_up.max_seconds
    while not is_steady(last) and time.perf_counter() < until:
        more = loop.repeat(exactly(WINDOW * max(1, round((GROWTH - 1) * runs / WINDOW)))).invoke_ns
        last, runs = np.concatenate([last, more])[-FEWEST_WARMUP:], runs + len(more)
    run_ns = int(np.median(last[-WINDOW:]))
    if is_steady(last):
        return Calibration.of(plan, runs, run_ns, f"after {runs} runs")
    # Processes that would not become steady either gain nothing by a longer warm-up than the plan's.
    return Calibration.of(plan, 0, run_ns, f"not reached in {runs} runs")


@dataclass(frozen=True, slots=True)
class _Begun:
    """A model that was opened and invoked once, and what that took."""

    start: Start
    pool: InputPool
    loop: Loop
    first_ns: int
    first_outputs: tuple[Array, ...]

    @classmethod
    def of(
        cls,
        opener: Opener,
        path: str,
        model_sha256: str,
        rules: Mapping[str, InputRule] | None,
        on_phase: Callable[[str], None],
    ) -> _Begun:
        on_phase("init")
        start = Start.of(opener, path, rules)
        model = start.opened.model
        pool = make_pool(model.get_input_details(), model_sha256, rules)
        memory.reset_peak()
        loop = Loop(model, pool)
        on_phase("first")
        first_ns, first_outputs = loop.once(0)
        return cls(start, pool, loop, first_ns, first_outputs)

    def peak_bytes(self) -> int:
        """The peak of memory until now, without the bytes of the input pool."""
        return max(self.start.peak_bytes, memory.peak_bytes() - self.pool.nbytes)

    def steady_bytes(self) -> int:
        """What is resident now, without the bytes of the input pool."""
        return memory.resident_bytes() - self.pool.nbytes

    def remembers(
        self, model_sha256: str, rules: Mapping[str, InputRule] | None, loop_ns: Sequence[int]
    ) -> str | None:
        """Invoke with inputs that this process has not seen, each followed by a known one; see `cached`.

        Nobody can foresee them, so nobody can have prepared the answers.
        """
        model = self.start.opened.model
        details = model.get_input_details()
        new = Loop(model, make_pool(details, f"{model_sha256}|{secrets.token_hex()}", rules))
        limit_ns = max(NEW_LEAST_NS, int(NEW_SHARE * sum(loop_ns)))
        new_ns: list[int] = []
        known_ns: list[int] = []
        for k in range(new.sets):
            if k >= NEW_LEAST and sum(new_ns) + sum(known_ns) > limit_ns:
                break
            new_ns.append(new.once(k)[0])
            known_ns.append(self.loop.once(k)[0])
        return cached(loop_ns, known_ns, new_ns)

    def result(
        self,
        peak_bytes: int,
        steady_bytes: int | None = None,
        *,
        facts: Mapping[str, str] | None = None,
        **measured: Any,
    ) -> ProcessResult:
        """What this process measured: `measured` are the fields that differ between kinds of processes."""
        start, opened = self.start, self.start.opened
        return ProcessResult(
            init_ns=start.init_ns,
            first_ns=self.first_ns,
            memory_before_bytes=start.before_bytes,
            memory_peak_bytes=start.grown(peak_bytes),
            delegation=opened.delegation,
            settings=dict(opened.describe()),
            output_facts=output_facts(opened.model),
            stages_ns=start.stages_ns,
            memory_bytes=start.memory_bytes(steady_bytes),
            unseen=start.unseen(),
            facts={
                "pool_sha256": self.pool.sha256,
                "clocks_mhz": clocks_mhz(),
                "memory_peak_reset": "yes" if start.peak_was_reset else "no: growth is a lower bound",
                **(facts or {}),
            },
            **measured,
        )


@dataclass(frozen=True, slots=True)
class _Repeated:
    """The times of a loop in ns: how long each invoke took, when it started; and why the loop ended."""

    invoke_ns: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    stop: Stop


class Loop:
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

    def once_and_again(self, k: int) -> tuple[Waited, tuple[Array, ...]]:
        """Invoke input set `k` and read the outputs twice: the second time, nothing is left to wait for."""
        started = time.perf_counter_ns()
        for index, value in zip(self._input_indices, self._pool.sets[k], strict=True):
            self._model.set_tensor(index, value)
        self._model.invoke()
        invoked = time.perf_counter_ns()
        outputs = tuple([self._model.get_tensor(i) for i in self._output_indices])
        read = time.perf_counter_ns()
        for i in self._output_indices:
            self._model.get_tensor(i)
        return Waited(read - started, read - invoked, time.perf_counter_ns() - read), outputs

    def repeat(self, plan: LoopPlan) -> _Repeated:
        """Time invokes until the plan is fulfilled; invoke i takes input set i mod `sets`."""
        samples = np.zeros(plan.max_runs, dtype=np.int64)
        starts = np.zeros(plan.max_runs, dtype=np.int64)
        model, indices, clock = self._model, self._output_indices, time.perf_counter_ns
        feeds = [list(zip(self._input_indices, values, strict=True)) for values in self._pool.sets]
        sets = len(feeds)
        n = 0
        outputs: tuple[Array, ...] = self.outputs
        precision, enough, wanted = Precision(), None, 0
        with collector_off():
            began = now = clock()
            while enough is None:
                while plan.goes_on(n, (now - began) / 1e9, wanted):
                    feed = feeds[n % sets]
                    started = clock()
                    for index, value in feed:
                        model.set_tensor(index, value)
                    model.invoke()
                    outputs = tuple([model.get_tensor(i) for i in indices])
                    now = clock()
                    samples[n] = now - started
                    starts[n] = started - began
                    n += 1
                enough = precision.look(samples[:n]) or _bound(plan, n, (now - began) / 1e9)
                wanted = math.ceil(GROWTH * n)
        self.outputs = outputs
        return _Repeated(samples[:n].copy(), starts[:n].copy(), enough)


def _bound(plan: LoopPlan, runs: int, seconds: float) -> Stop | None:
    """Return what bounds a loop whose median is not yet known well enough; None where it goes on."""
    if runs >= plan.max_runs:
        return "count"
    if seconds >= plan.max_seconds or (not plan.seeks_precision and plan.min_seconds > 0.0):
        return "time"
    return None if plan.seeks_precision else "count"


def _median_interval(samples: NDArray[np.int64]) -> str:
    """Return the 95 % order-statistic interval of this process's median, `low..high` in ns."""
    ranks = median_interval(len(samples))
    ordered = np.sort(samples)
    return "..".join("unbounded" if rank is None else str(ordered[rank - 1]) for rank in ranks)


@contextmanager
def collector_off() -> Iterator[None]:
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
