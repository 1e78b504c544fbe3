"""A compiled partition: candidates are chosen and recorded once, and every run replays the recording."""

from collections.abc import Callable, Sequence
from threading import Lock
from time import perf_counter, perf_counter_ns
from typing import Final

from runtime.delegates.abilities import DeviceTime, KernelTime, NotTold
from runtime.delegates.asynchrony import Completion, StartedRun
from runtime.delegates.base import Array, Copies, Partition
from runtime.delegates.gpu.backends.base import Backend, Entry
from runtime.delegates.gpu.choose.schedules import persistent, plain
from runtime.delegates.gpu.choose.tuning import Budget
from runtime.delegates.gpu.graph.simulation import Quantised
from runtime.delegates.gpu.settings.options import Options
from runtime.delegates.gpu.start.preparing import prepared
from runtime.delegates.storage import Storage
from runtime.errors import DeadlineError, DelegateError, InvocationError

DEADLINE_STEP: Final = 8
"""Enqueues between two looks at the clock where a run has a deadline. Each look waits for the device, which
takes some 20 microseconds with PoCL; fewer enqueues end a run sooner behind its deadline."""


class CompiledGraph:
    """A partition on a device. `invoke` only copies and enqueues.

    `budget`: the time that is left for choosing. `keeps_constants`: packed constants that are found in no
    file are written to one. `way`: what becomes of quantised tensors.
    """

    def __init__(
        self,
        partition: Partition,
        backend: Backend,
        options: Options,
        way: Quantised = Quantised.REAL,
        *,
        budget: Budget | None = None,
        keeps_constants: bool = True,
    ) -> None:
        self.backend = backend
        # Runs share the arena: one at a time, whichever thread asks.
        self._lock = Lock()
        self._has_started = False
        self._deadline_ms = options.deadline_ms
        ready = prepared(partition, backend, options, way, budget, keeps_constants=keeps_constants)
        self.graph, self.recording = ready.graph, ready.recording
        self.narrow_weights, self.choices = ready.narrow_weights, ready.choices
        self.disturbance, self.origin, self._needs = ready.disturbance, ready.origin, ready.needs
        self.refused = ready.refused
        shares_one_kernel = backend.capabilities.shares_one_kernel
        self.entries = (
            persistent(self.recording)
            if shares_one_kernel and options.persistent != "off"
            else plain(self.recording, shares_one_kernel=shares_one_kernel)
        )
        self.waits = options.waits
        self.recording.waits_actively = options.wait_type in ("active", "aggressive")
        self._copied_ns: tuple[int, int] | None = None
        self.awaits_copies = False
        """Whether a run waits until its inputs are on the device, as no timed one does."""

    @property
    def schedule(self) -> str:
        """A description of the enqueued layers."""
        layers = len(self.recording.rows)
        kind = "persistent" if any(entry.is_persistent for entry in self.entries) else "enqueued"
        joined = "" if len(self.entries) == layers else f" over {layers} layers"
        return f"{len(self.entries)} {kind} kernels{joined}"

    def invoke(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run once: `inputs` and `outputs` are dense arrays in the partition's order, of its types.

        Raises `InvocationError` where an operand holds what an operator cannot take, `DeadlineError` for a
        run that exceeds `deadline_ms`, and `DeviceError` where the device fails.
        """
        with self._lock, self.backend.errors("running the partition", self._needs):
            self._exchange(inputs, outputs, self._replay)

    def profile(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Sequence[KernelTime]:
        """See `runtime.delegates.profile.ProfiledPartition`. The times are those of the device's events."""
        recording, times = self.recording, list[int]()

        def run_each() -> None:
            # Uploads may still be on their way, and would be counted as part of a kernel.
            recording.finish()
            timed = recording.timer()
            times.extend(timed(recording.entry(layer)) for layer in range(len(recording.launches)))

        with self._lock, self.backend.errors("profiling the partition"):
            self._exchange(inputs, outputs, run_each)
        told = zip(recording.names, recording.launches, times, strict=True)
        return [
            KernelTime(name, one.label, tuple(dict.fromkeys(one.sources)), time, one.flops, one.bytes)
            for name, one, time in told
        ]

    def device_time(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> DeviceTime | NotTold:
        """See `runtime.delegates.abilities.DeviceTimedPartition`."""
        recording, entries = self.recording, self.entries
        if any(entry.is_persistent for entry in entries):
            return NotTold(
                f"{self.backend.capabilities.name} runs persistent kernels, which wait for one another while "
                "they run; the option persistent: off enqueues each by itself"
            )
        told: list[DeviceTime | NotTold] = []

        def run_timed() -> None:
            recording.finish()
            told.append(recording.device_time(entries))

        with self._lock, self.backend.errors("timing the partition by events", self._needs):
            self._exchange(inputs, outputs, run_timed)
        return told[0]

    def _replay(self) -> None:
        if self._deadline_ms is None:
            self.recording.run(self.entries)
        else:
            self._run_within(self._deadline_ms, self.entries)

    def _run_within(self, deadline_ms: int, entries: Sequence[Entry]) -> None:
        """Run entries in parts, and raise `DeadlineError` behind the part that exceeds the deadline.

        OpenCL cannot end a kernel that runs: what is enqueued already is waited for.
        """
        start = perf_counter()
        for first in range(0, len(entries), DEADLINE_STEP):
            part = entries[first : first + DEADLINE_STEP]
            self.recording.run(part)
            took = 1000 * (perf_counter() - start)
            if took > deadline_ms:
                total = len(self.recording.rows)
                raise DeadlineError(
                    f"gpu delegate: a run on {self.backend.capabilities.name} took {took:.1f} ms by layer "
                    f"{part[-1].last} of {total}, more than deadline_ms={deadline_ms}; the rest was not run, "
                    "and there are no outputs"
                )

    def _exchange(self, inputs: Sequence[Array], outputs: Sequence[Array], run: Callable[[], None]) -> None:
        """Copy in, run, check, and copy out."""
        recording = self.recording
        # A run in the background may still be using the arena.
        if self._has_started:
            recording.finish()
            self._has_started = False
        began_ns = perf_counter_ns()
        for value, array in zip(self.graph.inputs, inputs, strict=True):
            recording.write(value, array)
        if self.awaits_copies and recording.queues_uploads:
            recording.finish()
        in_ns = perf_counter_ns() - began_ns
        run()
        # Before any output is read: a run with a refused operand has none.
        failed = recording.failed_check()
        if failed is not None:
            raise InvocationError(failed)
        # Copied back, so that resetting, reading and setting variables work as on the CPU path.
        kept = (inputs[self.graph.inputs.index(state)] for state in self.graph.states)
        began_ns = perf_counter_ns()
        for value, target in zip(self.graph.outputs, (*outputs, *kept), strict=True):
            recording.read(value, target)
        self._copied_ns = in_ns, perf_counter_ns() - began_ns

    @property
    def copies(self) -> Copies | None:
        """The copies of the last `invoke`; None before one."""
        if self._copied_ns is None:
            return None
        ends = (self.graph.inputs, self.graph.outputs)
        sizes = (sum(self.graph.values[value].bytes for value in values) for values in ends)
        return Copies(*self._copied_ns, *sizes)

    @property
    def starts(self) -> bool:
        """False with variables, whose values are kept on the host, with a deadline, which the calling thread
        watches, and on backends that cannot do it.
        """
        return self.recording.runs_in_background and not self.graph.states and self._deadline_ms is None

    def start(
        self,
        inputs: Sequence[Storage],
        outputs: Sequence[Storage],
        after: Sequence[Completion] = (),
        behind: Sequence[Completion] = (),
    ) -> StartedRun:
        """Start a run on memory of the caller's. See `delegates.asynchrony.AsynchronousPartition.start`."""
        recording = self.recording
        with self._lock, self.backend.errors("starting the partition", self._needs):
            if recording.is_closed:
                raise DelegateError("gpu delegate: the model was closed, or an input resized, meanwhile")
            # Set before the call, since a start that fails may already have enqueued a part of the run.
            self._has_started = True
            return recording.start(
                self.entries,
                tuple(zip(self.graph.inputs, inputs, strict=True)),
                tuple(zip(self.graph.outputs, outputs, strict=True)),
                after,
                behind,
            )

    @property
    def is_closed(self) -> bool:
        """True behind `close`."""
        return self.recording.is_closed

    def close(self) -> None:
        """Release memory and program; the graph cannot run any more."""
        # Its entries hold kernels, and these the program.
        with self._lock:
            self.entries = []
            self.recording.close()
