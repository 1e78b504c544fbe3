"""The measured run of one process: init, first, warm-up, timed slices; its first and its last outputs."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from runtime.common.stages import Stage
from runtime.delegates.base import Array
from runtime.judge.agreement import OutputFacts
from runtime.measure import memory
from runtime.measure.honesty import NEW_LEAST, NEW_LEAST_NS, NEW_SHARE, cached, early_return
from runtime.measure.inputs import InputPool
from runtime.measure.loading import Subject, output_facts
from runtime.measure.loop import Loop, Times, timer_overhead_ns
from runtime.measure.outputs import is_stateful, steps
from runtime.measure.samples.noise import Usage, clocks_mhz, host_pressure, noise_flags
from runtime.measure.start import Start
from runtime.measure.transfer import DeviceTimes, Transfer, device_times, transfer
from runtime.measure.warm_up import WarmUp, calibrated

MEASURING_VERSION = "4"
"""A change of what a figure means raises this version, which cuts every series of results."""

UNTIMED_SHARE = 0.1
"""Invokes in front of a slice that are not timed, as a share of those that are, one at least. Chosen: they
bring back into the caches what another arm's slice has put out."""


def untimed_before(runs: int) -> int:
    """Return how many invokes that are not timed stand in front of a slice of so many timed ones."""
    return max(1, round(UNTIMED_SHARE * runs))


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """The measurement of one process; times in ns in the order of measurement.

    `start_ns` has the starts of timed invokes on CLOCK_MONOTONIC; invoke i ran set i mod `input_sets`.

    `outputs` of a measured process are those of the first invoke (set 0) and of the last timed one (set
    `last_set`), of a cold one those of every set. Memory is the growth of VmHWM from just before the model
    was loaded, without the bytes of the input pool.

    `stages_ns` are parts of `init_ns`. `memory_bytes` is what the process had grown by once the file was read
    (`load`), ready to invoke (`ready`) and after the last timed slice (`steady`, without the input pool), and
    what the delegate holds on its `device`; `unseen` says why one of all these is missing. `device` is what
    its device told in a pass of its own, `transfer` what another found of copies.
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
    transfer: Transfer = field(default_factory=Transfer)


class Session:
    """A model that was opened, invoked once and warmed up in this process, and is timed slice by slice."""

    def __init__(
        self, subject: Subject, warmup_runs: int, on_phase: Callable[[str], None] = lambda _phase: None
    ) -> None:
        """Open the model in this process, which should be fresh and run nothing else.

        `on_phase` is called with the name of the next phase, outside every timed region. Raises what
        `Subject.open` and `Subject.pool` raise.
        """
        self._begun = _Begun.of(subject, on_phase)
        self._on_phase = on_phase
        on_phase("warm-up")
        # Warmed up by a loop of its own: the timed invokes are counted from the first input set on.
        self._warmup_ns = self._begun.new_loop().run(warmup_runs).invoke_ns
        self._slices: list[Times] = []
        self._pressure = host_pressure()
        self._spent = Usage.nothing()

    @property
    def run_ns(self) -> int:
        """The time of an invoke in ns, by the second half of the warm-up, else by the first invoke."""
        steady = self._warmup_ns[len(self._warmup_ns) // 2 :]
        return int(np.median(steady)) if len(steady) else self._begun.first_ns

    def slice(self, runs: int) -> Times:
        """Time so many invokes, behind a few that are not timed."""
        before = Usage.now()
        times = self._begun.loop.run(runs, untimed=untimed_before(runs))
        self._spent += Usage.now() - before
        self._slices.append(times)
        return times

    def end(self) -> ProcessResult:
        """Return what was measured, behind the passes that follow the last slice."""
        begun, loop = self._begun, self._begun.loop
        # The empty array stands for no slice at all, of which `concatenate` would raise.
        timed_ns = np.concatenate([np.zeros(0, np.int64), *(times.invoke_ns for times in self._slices)])
        start_ns = np.concatenate([np.zeros(0, np.int64), *(times.start_ns for times in self._slices)])
        # Before new inputs are made, which are no part of what the model needs.
        peak_bytes, steady_bytes, outputs = begun.peak_bytes(), begun.steady_bytes(), loop.outputs
        last_set = loop.last_set
        flags = noise_flags(timed_ns, self._spent, timer_overhead_ns()) if len(timed_ns) else ()
        self._on_phase("new inputs")
        remembers = begun.remembers(timed_ns.tolist())
        self._on_phase("device times")
        opened, loop_ns = begun.start.opened, int(timed_ns.sum())
        transferred = transfer(opened, begun.new_loop(), begun.pool, loop_ns)
        device = device_times(opened, loop_ns)
        return begun.result(
            peak_bytes,
            steady_bytes,
            warmup_ns=tuple(self._warmup_ns.tolist()),
            invoke_ns=tuple(timed_ns.tolist()),
            start_ns=tuple(start_ns.tolist()),
            input_sets=loop.sets,
            outputs=(begun.first_outputs, outputs or begun.first_outputs),
            last_set=last_set,
            flags=flags if remembers is None else (*flags, remembers),
            device=device,
            transfer=transferred,
            facts={**self._pressure, **self._spent.facts()},
        )


def measure(
    subject: Subject,
    *,
    warmup_runs: int = 1,
    slices: int = 1,
    runs: int = 1,
    on_phase: Callable[[str], None] = lambda _phase: None,
) -> ProcessResult:
    """Measure one model in this process alone: as many slices of `runs` invokes. Raises as `Session`."""
    session = Session(subject, warmup_runs, on_phase)
    on_phase("invoke")
    for _ in range(slices):
        session.slice(runs)
    return session.end()


def start_cold(
    subject: Subject, on_phase: Callable[[str], None] = lambda _phase: None, plan: WarmUp | None = None
) -> ProcessResult:
    """Start one model where nothing is cached: `init` and `first`, then every other input set once, untimed.

    Its outputs are those of a freshly opened model, in order; they are what is judged, and once more those of
    a model that keeps state, after `runtime.measure.outputs.LATER` steps. With a `plan`, it then finds the
    warm-up of the processes that follow (`Calibration`, in `facts`). Raises as `Session`.
    """
    begun = _Begun.of(subject, on_phase)
    on_phase("outputs")
    others = [begun.loop.once_and_again(k) for k in range(1, begun.loop.sets)]
    early = early_return([waited for waited, _ in others])
    peak_bytes, facts = begun.peak_bytes(), {}
    later = _later(begun.loop) if is_stateful(subject.path) else []
    if plan is not None:
        on_phase("calibration")
        # The least of them, as any single run may have been disturbed.
        run_ns = min((waited.whole_ns for waited, _ in others), default=begun.first_ns)
        facts = calibrated(begun.loop, plan, run_ns).facts()
    return begun.result(
        peak_bytes,
        outputs=(begun.first_outputs, *(outputs for _, outputs in others), *later),
        flags=() if early is None else (early,),
        facts=facts,
    )


def _later(loop: Loop) -> list[tuple[Array, ...]]:
    """Go on with a model that has run every input set once; return the outputs that are judged again."""
    left = list(steps(loop.sets, is_stateful=True))[loop.sets :]
    found = [(is_judged, loop.once(step % loop.sets)[1]) for step, is_judged in left]
    return [outputs for is_judged, outputs in found if is_judged]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A model that was opened and invoked once, and what that took."""

    subject: Subject
    start: Start
    pool: InputPool
    loop: Loop
    first_ns: int
    first_outputs: tuple[Array, ...]

    @classmethod
    def of(cls, subject: Subject, on_phase: Callable[[str], None]) -> "_Begun":
        on_phase("init")
        start = Start.of(subject)
        model = start.opened.model
        pool = subject.pool(model)
        # The peak of making the inputs is not the model's.
        memory.reset_peak()
        loop = Loop(model, pool)
        on_phase("first")
        first_ns, first_outputs = loop.once(0)
        return cls(subject, start, pool, loop, first_ns, first_outputs)

    def new_loop(self) -> Loop:
        """Return a loop over the same model and inputs, which counts its invokes by itself."""
        return Loop(self.start.opened.model, self.pool)

    def peak_bytes(self) -> int:
        """Return the peak of memory until now in bytes, without the input pool."""
        return max(self.start.peak_bytes, memory.peak_bytes() - self.pool.nbytes)

    def steady_bytes(self) -> int:
        """Return the resident memory now in bytes, without the input pool."""
        return memory.resident_bytes() - self.pool.nbytes

    def remembers(self, loop_ns: Sequence[int]) -> str | None:
        """Invoke with inputs that this process has not seen, each followed by a known one; see `cached`.

        Nobody can foresee them, so nobody can have prepared the answers.
        """
        model = self.start.opened.model
        # The sha256 seeds the inputs, so that a random text behind it makes new ones by the same rules.
        unforeseen = replace(self.subject, sha256=f"{self.subject.sha256}|{secrets.token_hex()}")
        new = Loop(model, unforeseen.pool(model))
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
        """Build the result of this process; `measured` differs between kinds of processes."""
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
