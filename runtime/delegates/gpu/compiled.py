"""A compiled partition: candidates are chosen and recorded once, and every run replays the recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from time import perf_counter
from typing import Final

from runtime.common.stages import stage
from runtime.delegates.asynchrony import Completion, StartedRun
from runtime.delegates.base import Array, GraphFacts, Partition, Unsupported
from runtime.delegates.device_time import DeviceTime, NotTold
from runtime.delegates.gpu.backends.base import (
    AsynchronousRecording,
    Backend,
    Entry,
    EventTimedRecording,
    Recording,
)
from runtime.delegates.gpu.builder import build_graph, graph_of_one, is_folded
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.choose.schedules import persistent, plain
from runtime.delegates.gpu.choose.tuning import Tuner
from runtime.delegates.gpu.graph.graph import Graph, Node, without_constants
from runtime.delegates.gpu.graph.rounding import round_weights
from runtime.delegates.gpu.graph.simulation import Quantised
from runtime.delegates.gpu.keep.progress import announced
from runtime.delegates.gpu.layout.constants import narrow_weights
from runtime.delegates.gpu.layout.memory import Stage, demand, place, shortage, smallest
from runtime.delegates.gpu.layout.packed_file import packed_files
from runtime.delegates.gpu.layout.source import assemble
from runtime.delegates.gpu.lowering import family_of
from runtime.delegates.gpu.lowering.spec import Candidate, Context
from runtime.delegates.gpu.passes import LayoutRules, optimise
from runtime.delegates.gpu.settings.options import Options
from runtime.delegates.profile import KernelTime
from runtime.delegates.storage import Storage
from runtime.errors import DeadlineError, DelegateError, InvocationError
from runtime.model.graph import Operator

DEADLINE_STEP: Final = 8
"""Enqueues between two looks at the clock where a run has a deadline. Each look waits for the device, which
takes some 20 microseconds with PoCL; fewer enqueues end a run sooner behind its deadline."""


def layout_rules() -> LayoutRules:
    """Return the abilities of the kernel families for the passes, which know no families."""
    return LayoutRules(
        applies_epilogue=lambda node, graph: family_of(node, graph).epilogue,
        reads_any_layout=lambda node, graph: family_of(node, graph).reads_any_layout(node, graph),
        writes_dense=lambda node, graph: family_of(node, graph).writes_dense(node, graph),
    )


def candidates_of(node: Node, context: Context) -> Sequence[Candidate]:
    """Return the candidates for a node on the device, the default first. Raises `DelegateError` if there is
    none.
    """
    found = family_of(node, context.graph).lower(node, context)
    if not context.device.runs_units:
        found = [candidate for candidate in found if candidate.works_in_groups]
    if not found:
        raise DelegateError(f"gpu delegate: no kernel fits {node.op.name} (operators {list(node.sources)})")
    return smallest(found) if context.spares_memory else found


def lowered(
    partition: Partition, device: Capabilities, options: Options, way: Quantised
) -> tuple[Graph, list[list[Candidate]]]:
    """Return the graph of a partition after the passes, and the candidates for each of its nodes.

    Raises `DelegateError` where a node has none.
    """
    built = build_graph(partition, is_narrow=options.weights == "stored", way=way)
    rounded = round_weights(built, str(options.precision))
    graph = optimise(rounded, layout_rules(), options.skipped_passes)
    context = Context(graph, device, options.memory == "least")
    return graph, [list(candidates_of(node, context)) for node in graph.nodes]


def _release(partition: Partition) -> None:
    """Give up the memory of the model's file, behind everything that reads its weights."""
    if partition.model.source is not None:
        partition.model.source.release()


def unit_refusal(
    facts: GraphFacts, operator: Operator, device: Capabilities, way: Quantised
) -> Unsupported | None:
    """Return why a device that runs only kernels of work-groups cannot run an operator, or None.

    The operator has passed `builder.refusal`. It is lowered as if it were alone, which compiles nothing.
    """
    if device.runs_units or is_folded(facts, operator):
        return None
    graph = optimise(graph_of_one(facts, operator, way), layout_rules())
    for node in graph.nodes:
        try:
            candidates_of(node, Context(graph, device))
        except DelegateError:
            kinds = sorted({graph.values[value].type.value for value in (*node.reads, *node.outputs)})
            return Unsupported(
                f"{device.platform} runs kernels of work-groups alone, of which none computes {node.op.name} "
                f"of {' and '.join(kinds)} in this form"
            )
    return None


class CompiledGraph:
    """A partition on a device. `invoke` only copies and enqueues.

    `keeps_constants`: packed constants that are found in no file are written to one. `way`: what becomes of
    quantised tensors.
    """

    def __init__(
        self,
        partition: Partition,
        backend: Backend,
        options: Options,
        way: Quantised = Quantised.REAL,
        *,
        keeps_constants: bool = True,
    ) -> None:
        self.backend = backend
        # Runs share the arena: one at a time, whichever thread asks.
        self._lock = Lock()
        self._has_started = False
        self._deadline_ms = options.deadline_ms
        self.graph, alternatives = lowered(partition, backend.capabilities, options, way)
        tuner = Tuner(backend, options)
        # The candidates of all nodes at once: what is missing is compiled in parallel.
        alternatives = tuner.shortlist(alternatives)
        device = backend.capabilities
        defaults = [Stage(position, node[0]) for position, node in enumerate(alternatives)]
        # Before the compiler, which takes seconds, and before weights are packed.
        placement = place(self.graph, defaults, device.max_allocation_bytes)
        if (lack := shortage(placement, device)) is not None:
            raise DelegateError(f"gpu delegate: {lack}; choose a device with more memory, or a smaller input")
        launches = [launch for node in alternatives for candidate in node for launch in candidate.launches]
        source = assemble(launches, device)
        compiling = f"compiling {len(source.kernels)} kernels for {device.name}"
        self._needs = demand(placement, device)
        with announced(compiling) as announcement, backend.errors("preparing the partition", self._needs):

            def progress(done: int, missing: int) -> None:
                announcement.doing = f"{compiling}, {done} of {missing} new ones are done"

            program = backend.compile(source, progress)
            announcement.doing = f"timing the alternatives on {device.name}"
            with stage("tune"):
                stages = tuner.choose(self.graph, alternatives, source, program)
            self.narrow_weights = narrow_weights(one for stage in stages for one in stage.candidate.launches)
            _release(partition)
            announcement.doing = f"packing the constants for {device.name}"
            # Constants in the order of candidates that the next start may not choose would not be found then.
            files = packed_files(
                partition.model,
                backend.cache,
                f"{device.key}|{options.precision}|{options.weights}",
                options.model_token,
                may_write=keeps_constants,
            )
            with stage("upload"):
                self.recording: Recording = backend.record(self.graph, stages, source, program, files)
            _release(partition)
            if not device.is_pocl:
                self.recording.first_runs(announcement)
            self.entries = (
                persistent(self.recording)
                if device.shares_one_kernel and options.persistent != "off"
                else plain(self.recording, shares_one_kernel=device.shares_one_kernel)
            )
            self.choices = tuner.choices
            # Timing runs on memory that nothing has filled, which no check need like.
            self.recording.failed_check()
        self.waits = options.wait_type != "do_not_wait"
        # Asked once: such a question takes longer than to start a small model.
        self._background = self.recording if isinstance(self.recording, AsynchronousRecording) else None
        if options.wait_type != "passive":
            if self._background is None:
                raise DelegateError(
                    f"gpu delegate: wait_type {options.wait_type!r} needs the backend opencl; use passive"
                )
            self._background.waits_actively = options.wait_type != "do_not_wait"
        # Not earlier: lowering packed the weights from the graph, and the recording holds its own copy.
        self.graph = without_constants(self.graph)

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
        """See `runtime.delegates.device_time.DeviceTimedPartition`."""
        recording, entries = self.recording, self.entries
        if not isinstance(recording, EventTimedRecording):
            return NotTold(f"{self.backend.capabilities.name}: events of this backend carry no times")
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
        if self._has_started:
            recording.finish()
            self._has_started = False
        for value, array in zip(self.graph.inputs, inputs, strict=True):
            recording.write(value, array)
        run()
        failed = recording.failed_check()
        if failed is not None:
            raise InvocationError(failed)
        # Copied back, so that resetting, reading and setting variables work as on the CPU path.
        kept = (inputs[self.graph.inputs.index(state)] for state in self.graph.states)
        for value, target in zip(self.graph.outputs, (*outputs, *kept), strict=True):
            recording.read(value, target)

    @property
    def starts(self) -> bool:
        """False with variables, whose values are kept on the host, with a deadline, which the calling thread
        watches, and on backends that cannot do it.
        """
        return self._background is not None and not self.graph.states and self._deadline_ms is None

    def start(
        self,
        inputs: Sequence[Storage],
        outputs: Sequence[Storage],
        after: Sequence[Completion] = (),
        behind: Sequence[Completion] = (),
    ) -> StartedRun:
        """Start a run on memory of the caller's. See `delegates.asynchrony.AsynchronousPartition.start`."""
        recording = self._background
        assert recording is not None
        with self._lock, self.backend.errors("starting the partition", self._needs):
            if recording.is_closed:
                raise DelegateError("gpu delegate: the model was closed, or an input resized, meanwhile")
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
