"""Makes a partition ready to run: by the recording of an earlier start, or by choosing and packing anew."""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from functools import partial

from runtime.common.stages import stage
from runtime.delegates.base import Partition
from runtime.delegates.descriptor import KEPT
from runtime.delegates.gpu.alternatives import lowered
from runtime.delegates.gpu.backends.base import Backend, GroupLimitError, KeepingBackend, Recording, recorded
from runtime.delegates.gpu.choose.contention import disturbance
from runtime.delegates.gpu.choose.tuning import Budget, Tuner
from runtime.delegates.gpu.graph.graph import Graph, without_constants
from runtime.delegates.gpu.graph.simulation import Quantised
from runtime.delegates.gpu.graph.weights import WeightType
from runtime.delegates.gpu.keep.progress import announced
from runtime.delegates.gpu.layout.constants import narrow_weights
from runtime.delegates.gpu.layout.memory import Stage, demand, place, shortage
from runtime.delegates.gpu.layout.packed_file import PackedFiles, packed_files
from runtime.delegates.gpu.layout.source import assemble
from runtime.delegates.gpu.lowering.spec import Code
from runtime.delegates.gpu.settings.options import Options
from runtime.delegates.gpu.start.recordings import KeptRecording, Recordings, recordings_of
from runtime.errors import DelegateError


@dataclass(frozen=True, slots=True)
class Prepared:
    """The recording of a partition, and how it was made.

    `choices` are names of candidates by keys. `disturbance` says why rules chose for this start alone,
    `origin` where the recording comes from, empty where none can be kept, `needs` how much memory it takes,
    for a message of the driver's.
    `kernels` are the keys of its functions by their names, where the backend keeps them. `refused` are the
    reasons why smaller tiles stand in for kernels that the device does not run.
    """

    graph: Graph
    recording: Recording
    narrow_weights: Mapping[WeightType, int]
    choices: Mapping[str, str]
    disturbance: str
    needs: str
    kernels: Mapping[str, str]
    origin: str = ""
    refused: tuple[str, ...] = ()


def prepared(
    partition: Partition,
    backend: Backend,
    options: Options,
    way: Quantised,
    budget: Budget | None,
    *,
    keeps_constants: bool,
) -> Prepared:
    """Prepare a partition within the budget for choosing; what is made is kept where `keeps_constants`.

    Raises `DelegateError` where no kernel fits or compiles, `DeviceError` where the device refuses.
    """
    device = backend.capabilities
    # Constants in the order of candidates that the next start may not choose would not be found then.
    settings = f"{device.key}|{options.precision}|{options.weights}|{options.rounding}"
    files = packed_files(
        partition.model, backend.cache, settings, options.model_token, may_write=keeps_constants
    )
    recordings = recordings_of(partition, device, options, way, files)
    make = partial(_made, partition, backend, options, way, budget, files)
    if recordings is None or not isinstance(backend, KeepingBackend):
        return _made_again(make)
    found = _replayed(recordings, backend)
    if isinstance(found, Prepared):
        _release(partition)
        return found
    made = _made_again(make)
    if keeps_constants:
        _keep(recordings, made)
    return replace(made, origin=f"made anew: {found}" if found else "made")


def _replayed(recordings: Recordings, backend: KeepingBackend) -> Prepared | str:
    """Return a kept recording; the reason where there is one that cannot be used.

    One that rules chose for a disturbed device is made anew once the device is quiet.
    """
    kept, reason = recordings.read()
    if kept is None:
        return reason
    with stage("tune"):
        disturbed = "" if kept.is_settled else disturbance(backend.capabilities)
    if not kept.is_settled and not disturbed:
        return "nothing had been timed for it"
    with backend.errors("preparing the partition", kept.plan.needs), stage("upload"):
        recording = recordings.replayed(kept, backend)
    if isinstance(recording, str):
        return recording
    return Prepared(
        kept.plan.graph,
        recording,
        kept.narrow_weights,
        kept.choices,
        disturbed,
        kept.plan.needs,
        kept.kernels,
        origin=KEPT,
        refused=kept.refused,
    )


def _keep(recordings: Recordings, made: Prepared) -> None:
    recordings.write(
        KeptRecording(
            made.recording.plan,
            made.kernels,
            dict(made.recording.constant_files),
            dict(made.narrow_weights),
            dict(made.choices),
            is_settled=not made.disturbance,
            refused=made.refused,
        )
    )


def _made_again(make: Callable[[Set[Code]], Prepared]) -> Prepared:
    """Make it, anew with smaller tiles where the device does not run the work-groups of what was compiled."""
    refused: dict[Code, str] = {}
    while True:
        try:
            return replace(make(refused.keys()), refused=tuple(refused.values()))
        except GroupLimitError as error:
            # Nothing new to avoid, so another attempt would end the same way.
            if error.refused.keys() <= refused.keys():
                raise
            refused |= error.refused


def _made(
    partition: Partition,
    backend: Backend,
    options: Options,
    way: Quantised,
    budget: Budget | None,
    files: PackedFiles | None,
    refused: Set[Code],
) -> Prepared:
    """Lower, without refused code, choose, compile, pack and record."""
    device = backend.capabilities
    graph, alternatives = lowered(partition, device, options, way, refused)
    tuner = Tuner(backend, options, budget)
    # The candidates of all nodes at once: what is missing is compiled in parallel.
    with stage("tune"):
        alternatives = tuner.shortlist(alternatives)
    defaults = [Stage(position, node[0]) for position, node in enumerate(alternatives)]
    # Before the compiler, which takes seconds, and before weights are packed.
    placement = place(graph, defaults, device)
    if (lack := shortage(placement, device)) is not None:
        raise DelegateError(f"gpu delegate: {lack}; choose a device with more memory, or a smaller input")
    launches = [launch for node in alternatives for candidate in node for launch in candidate.launches]
    source = assemble(launches, device)
    compiling = f"compiling {len(source.kernels)} kernels for {device.name}"
    needs = demand(placement, device)
    with announced(compiling) as announcement, backend.errors("preparing the partition", needs):

        def progress(done: int, missing: int) -> None:
            announcement.doing = f"{compiling}, {done} of {missing} new ones are done"

        program = backend.compile(source, progress)
        announcement.doing = f"timing the alternatives on {device.name}"
        with stage("tune"):
            stages = tuner.choose(graph, alternatives, source, program)
        narrow = narrow_weights(one for chosen in stages for one in chosen.candidate.launches)
        # Timing has read the weights of every candidate; packing reads only those of the chosen ones again.
        _release(partition)
        announcement.doing = f"packing the constants for {device.name}"
        with stage("upload"):
            recording = recorded(backend, graph, stages, source, program, files)
        _release(partition)
        # PoCL's kernels already ran once, in the child processes that compiled them.
        if not device.is_pocl:
            recording.first_runs(announcement)
        # Timing runs on memory that nothing has filled, which no check need like.
        recording.failed_check()
    return Prepared(
        # Without what lowering packed from: the recording holds its own copy.
        without_constants(graph),
        recording,
        narrow,
        tuner.choices,
        tuner.disturbance,
        needs,
        backend.kernel_keys(source) if isinstance(backend, KeepingBackend) else {},
    )


def _release(partition: Partition) -> None:
    """Give up the memory of the model's file, behind everything that reads its weights."""
    if partition.model.source is not None:
        partition.model.source.release()
