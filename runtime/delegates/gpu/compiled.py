"""A compiled partition: candidates are chosen and recorded once, and every run replays the recording."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from runtime.delegates.base import Array, Partition
from runtime.delegates.gpu.backends.base import Backend, Entry, Recording
from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.graph import Graph, Node, without_constants
from runtime.delegates.gpu.lowering import family_of
from runtime.delegates.gpu.lowering.spec import Candidate, Context
from runtime.delegates.gpu.memory import Stage, place, shortage
from runtime.delegates.gpu.options import Options
from runtime.delegates.gpu.packed_file import packed_files
from runtime.delegates.gpu.passes import LayoutRules, optimise
from runtime.delegates.gpu.progress import announced
from runtime.delegates.gpu.rounding import round_weights
from runtime.delegates.gpu.simulation import Quantised
from runtime.delegates.gpu.source import assemble
from runtime.delegates.gpu.tuning import Tuner
from runtime.delegates.gpu.watch import SpinWatch
from runtime.errors import DelegateError, InvocationError


def layout_rules() -> LayoutRules:
    """What the kernel families can do, asked by the passes, which know no families."""
    return LayoutRules(
        applies_epilogue=lambda node, graph: family_of(node, graph).epilogue,
        reads_any_layout=lambda node, graph: family_of(node, graph).reads_any_layout(node, graph),
        writes_dense=lambda node, graph: family_of(node, graph).writes_dense(node, graph),
    )


def candidates_of(node: Node, context: Context) -> Sequence[Candidate]:
    """The ways to run a node, the default first. Raises `DelegateError` where there is none."""
    found = family_of(node, context.graph).lower(node, context)
    if not found:
        raise DelegateError(f"gpu delegate: no kernel fits {node.op.name} (operators {list(node.sources)})")
    return found


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
        built = build_graph(partition, is_narrow=options.weights == "stored", way=way)
        self.graph: Graph = optimise(round_weights(built, str(options.precision)), layout_rules())
        context = Context(self.graph, backend.capabilities)
        alternatives = [list(candidates_of(node, context)) for node in self.graph.nodes]
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
        with announced(compiling) as announcement, backend.errors("preparing the partition"):

            def progress(done: int, missing: int) -> None:
                announcement.doing = f"{compiling}, {done} of {missing} new ones are done"

            program = backend.compile(source, progress)
            announcement.doing = f"timing the alternatives on {device.name}"
            stages = tuner.choose(self.graph, alternatives, source, program)
            announcement.doing = f"packing the constants for {device.name}"
            # Constants in the order of candidates that the next start may not choose would not be found then.
            files = packed_files(
                partition.model,
                backend.cache,
                f"{device.key}|{options.precision}|{options.weights}",
                options.model_token,
                may_write=keeps_constants and tuner.is_settled,
            )
            self.recording: Recording = backend.record(self.graph, stages, source, program, files)
            if partition.model.source is not None:
                partition.model.source.release()
            if not device.is_pocl:
                self.recording.first_runs(announcement)
            announcement.doing = f"timing the schedules on {device.name}"
            self.watch: SpinWatch[list[Entry]] = tuner.schedule(self.recording, source)
            # Timing runs on memory that nothing has filled, which no check need like.
            self.recording.failed_check()
        # Not earlier: lowering packed the weights from the graph, and the recording holds its own copy.
        self.graph = without_constants(self.graph)

    @property
    def schedule(self) -> str:
        """How the layers are enqueued, and how often the watch returned to plain enqueues."""
        entries, launches = len(self.watch.preferred), len(self.recording.rows)
        if entries == launches:
            return f"{launches} enqueued kernels"
        text = f"{entries} persistent kernels over {launches} layers"
        return f"{text}, stepped back {self.watch.step_backs} times" if self.watch.step_backs else text

    def invoke(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run once: `inputs` and `outputs` are dense arrays in the partition's order, of its types.

        Raises `InvocationError` where an operand holds what an operator cannot take.
        """
        recording = self.recording
        with self.backend.errors("running the partition"):
            for value, array in zip(self.graph.inputs, inputs, strict=True):
                recording.write(value, array)
            start = perf_counter()
            recording.run(self.watch.next())
            self.watch.note(perf_counter() - start)
            failed = recording.failed_check()
            if failed is not None:
                raise InvocationError(failed)
            # Copied back, so that resetting, reading and setting variables work as on the CPU path.
            kept = (inputs[self.graph.inputs.index(state)] for state in self.graph.states)
            for value, target in zip(self.graph.outputs, (*outputs, *kept), strict=True):
                recording.read(value, target)

    @property
    def is_closed(self) -> bool:
        """True behind `close`."""
        return self.recording.is_closed

    def close(self) -> None:
        """Release memory and program; the graph cannot run any more."""
        # Its entries hold kernels, and these the program.
        self.watch = SpinWatch([], [])
        self.recording.close()
