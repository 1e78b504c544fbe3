"""Chooses a candidate for each node and the way to enqueue them, by measurements that are kept on disk."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING

from runtime.delegates.gpu.backends.base import Backend, Entry, Program, Recording
from runtime.delegates.gpu.contention import Contention
from runtime.delegates.gpu.graph import Graph
from runtime.delegates.gpu.lowering.spec import Candidate
from runtime.delegates.gpu.memory import Stage, place, shortage
from runtime.delegates.gpu.options import Options
from runtime.delegates.gpu.source import Source, function_of, kernel_source, parameters_of
from runtime.delegates.gpu.watch import SpinWatch

if TYPE_CHECKING:
    pass

_SHORTLIST = {"none": 1, "fast": 2, "exhaustive": 99}
"""Candidates of a node that are compiled and timed, by the option `tuning`; 99 means all. Compiling takes
most of the first start: 0.1 to 0.2 seconds for each function with PoCL."""

_ROUNDS = {"none": 0, "fast": 9, "exhaustive": 30}
"""Most timed rounds, by the option `tuning`, behind one that warms up. Chosen: of 9 samples the lower
quartile is the third; more rounds distinguish closer candidates, and take longer."""

_FEWEST_ROUNDS = 3
"""Timed rounds that are run however long they take. With fewer, one disturbed run could decide."""

_TIMING_SECONDS = {"none": 0.0, "fast": 0.5, "exhaustive": 60.0}
"""Seconds of timing candidates after which no further round begins, by the option `tuning`. A model for
phones takes less for all rounds; more would delay the first result of a large model, and gain it little."""

_TIMED_BYTES = 64 << 20
"""Bytes of constants that candidates which are timed together may have, unless one node alone has more.
They are in memory beside the model; smaller groups find more of their constants in the caches than in use."""

_LIGHT_SHARE = {"none": 0.0, "fast": 0.02, "exhaustive": 0.0}
"""Share of the graph's estimated time below which equal nodes together get no second candidate, by the option
`tuning`. Chosen: even a candidate that is a fifth faster would gain less than half a percent there."""

_BYTE_WEIGHT = 8
"""Flops that take about as long as a byte of traffic: about 200 GFLOP/s of a core with AVX-512 against 25
GB/s from memory. It only ranks nodes by weight; larger puts those that copy first."""

_SCHEDULE_ROUNDS = {"none": 5, "fast": 11, "exhaustive": 31}
"""Most rounds in which the schedules are compared, by the option `tuning`; odd, and even "none" must measure,
as no rule tells which schedule is faster."""

_FEWEST_SCHEDULE_ROUNDS = 3
"""Rounds that are run however long they take. With fewer, one disturbed run could choose the schedule."""

_SCHEDULE_SECONDS = 1.0
"""Seconds after which no further round begins, so that the first result of a large model does not wait for a
choice that gains it little: the longer a run, the smaller the share of its launches."""

_SEGMENT_LENGTHS = ("16", "100000")
"""Most layers of a persistent segment, as the names under which a schedule is kept; the second means the
whole graph. Short segments lose a launch each, and end sooner when another program takes a core away."""

_MARGIN = 1.02
"""Factor by which the time of a persistent schedule counts as longer than it was. Equal schedules are then
enqueued plainly, which a foreign load slows down less; larger forgoes real gains."""

_TRIED_MACHINES = frozenset({"x86_64", "AMD64"})
"""Processors, by the names of `platform.machine`, on which persistent segments have been run."""

_LAUNCH_NS = 1500
"""Nanoseconds that a further launch of a candidate costs beside its own time: a barrier, and the idle end of
the launch before. The lower end of what an enqueued kernel cost with PoCL, 1.5 to 2.5 microseconds on one
core."""


class Tuner:
    """Measures candidates on the device, and keeps winners by device, driver, threads and functions."""

    def __init__(self, backend: Backend, options: Options) -> None:
        self._backend = backend
        self._effort = options.tuning
        self._persistent = options.persistent
        self.is_settled = True
        """False once candidates were chosen by times that hold for this start only."""

    def shortlist(self, alternatives: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """The candidates that the option `tuning` allows; compiling is slow, so light nodes get one.

        Of candidates that were compared before, the winner alone is left.
        """
        keys = [self._key(node) for node in alternatives]
        weights: dict[str, int] = {}
        for key, node in zip(keys, alternatives, strict=True):
            weights[key] = weights.get(key, 0) + _weight(node[0])
        light = _LIGHT_SHARE[self._effort] * sum(weights.values())
        most = _SHORTLIST[self._effort]
        allowed = [
            list(node[: most if weights[key] >= light else 1])
            for key, node in zip(keys, alternatives, strict=True)
        ]
        return [self._winner(node) or node for node in allowed]

    def _winner(self, node: Sequence[Candidate]) -> list[Candidate]:
        name = self._recall(self._key(node)) if len(node) > 1 else None
        return [candidate for candidate in node if candidate.name == name]

    def choose(
        self,
        graph: Graph,
        alternatives: Sequence[Sequence[Candidate]],
        source: Source,
        program: Program,
    ) -> list[Stage]:
        """One candidate for each node."""
        keys = [self._key(node) if len(node) > 1 else "" for node in alternatives]
        compared: dict[str, list[Stage]] = {}
        for position, (key, node) in enumerate(zip(keys, alternatives, strict=True)):
            if key and key not in compared:
                compared[key] = [Stage(position, candidate) for candidate in node]
        winners: dict[str, str] = {}
        if compared:
            contention = Contention()
            groups = self._groups(graph, compared)
            for group in groups:
                timed = {key: compared[key] for key in group}
                winners |= self._measure(graph, timed, source, program, 1 / len(groups))
            # What was found while other programs had the cores holds for this start only.
            if contention.is_disturbed():
                self.is_settled = False
            else:
                for key, name in winners.items():
                    self._remember(key, name)
        stages = []
        for position, (key, node) in enumerate(zip(keys, alternatives, strict=True)):
            named = [candidate for candidate in node if candidate.name == winners.get(key)]
            stages.append(Stage(position, (named or list(node))[0]))
        return stages

    def schedule(self, recording: Recording, source: Source) -> SpinWatch[list[Entry]]:
        """How the layers are enqueued: one by one, or persistent segments (PoCL's CPU devices only)."""
        count = len(recording.launches)
        plain = [recording.entry(layer) for layer in range(count)]
        # A single layer has no further launch to save.
        if self._persistent == "off" or not self._may_persist() or count < 2:
            return SpinWatch(plain, plain)
        if self._persistent == "on":
            whole = _segments(recording, count)
            return SpinWatch(whole, whole)
        content = repr((source.kernels, recording.rows, self._backend.capabilities))
        key = hashlib.sha256(f"schedule{content}".encode()).hexdigest()
        length = self._recall(key)
        if length is None:
            schedules = {size: _segments(recording, int(size)) for size in _SEGMENT_LENGTHS} | {"0": plain}
            contention = Contention()
            length = self._fastest(recording, schedules)
            if not contention.is_disturbed():
                self._remember(key, length)
        preferred = _segments(recording, int(length)) if length in _SEGMENT_LENGTHS else plain
        return SpinWatch(preferred, plain)

    def _may_persist(self) -> bool:
        """True where the barrier of a segment is known to hold.

        All groups must run at the same time, as on PoCL's threads, and the compiler must have fences of the
        whole device, as PoCL's clang has. That has been tried on x86 only, whose stores stay in order anyway.
        """
        device = self._backend.capabilities
        return device.shares_one_kernel and platform.machine() in _TRIED_MACHINES

    def _fastest(self, recording: Recording, schedules: Mapping[str, Sequence[Entry]]) -> str:
        """The name of the schedule that is fastest in interleaved runs; a persistent one must win clearly.

        Where other programs starve the spinning ones, few rounds are enough to see it.
        """
        times: dict[str, list[float]] = {name: [] for name in schedules}
        for entries in schedules.values():
            recording.run(entries)
        started = perf_counter()
        for attempt in range(_SCHEDULE_ROUNDS[self._effort]):
            if attempt >= _FEWEST_SCHEDULE_ROUNDS and perf_counter() - started > _SCHEDULE_SECONDS:
                break
            for name, entries in schedules.items():
                start = perf_counter()
                recording.run(entries)
                times[name].append(perf_counter() - start)
        typical = {
            name: _typical(samples) * (1.0 if name == "0" else _MARGIN) for name, samples in times.items()
        }
        return min(typical, key=lambda name: typical[name])

    def _groups(self, graph: Graph, compared: Mapping[str, Sequence[Stage]]) -> list[list[str]]:
        """The nodes that are timed together, by their keys; without those whose candidates have no room.

        Large weights of all candidates at once would take several times the memory of the model.
        """
        groups: list[list[str]] = []
        size = 0
        for key, stages in compared.items():
            # The defaults have room; beside all others they may not, and then they are what runs.
            if self._lacks(graph, stages):
                continue
            needed = place(graph, stages, self._backend.capabilities.max_allocation_bytes).constant_bytes
            if not groups or size + needed > _TIMED_BYTES:
                groups.append([])
                size = 0
            groups[-1].append(key)
            size += needed
        return groups

    def _lacks(self, graph: Graph, stages: Sequence[Stage]) -> bool:
        device = self._backend.capabilities
        return shortage(place(graph, stages, device.max_allocation_bytes), device) is not None

    def _measure(
        self,
        graph: Graph,
        compared: Mapping[str, Sequence[Stage]],
        source: Source,
        program: Program,
        share: float,
    ) -> dict[str, str]:
        """Time candidates by their nodes' keys, and return the name of the fastest for each.

        Rounds go through all of them, so that caches are as cold as in use and a disturbance hits all.
        `share` is the part of the time for all rounds that these may take.
        """
        stages = [stage for candidates in compared.values() for stage in candidates]
        owners = [key for key, candidates in compared.items() for _ in candidates]
        if self._lacks(graph, stages):
            return {}
        # All candidates of a node write the node's buffer in turn: times are compared here, not results.
        recording = self._backend.record(graph, stages, source, program)
        timed = recording.timer()
        entries = [recording.entry(layer) for layer in range(len(recording.launches))]
        times: dict[tuple[str, str], list[int]] = {}
        started = perf_counter()
        for attempt in range(_ROUNDS[self._effort] + 1):
            spent = perf_counter() - started
            if attempt > _FEWEST_ROUNDS and spent > share * _TIMING_SECONDS[self._effort]:
                break
            layer = 0
            for stage, key in zip(stages, owners, strict=True):
                elapsed = _LAUNCH_NS * (len(stage.candidate.launches) - 1)
                for _ in stage.candidate.launches:
                    elapsed += timed(entries[layer])
                    layer += 1
                if attempt:
                    times.setdefault((key, stage.candidate.name), []).append(elapsed)
        recording.close()
        best: dict[str, tuple[float, str]] = {}
        for (key, name), samples in times.items():
            result = (_typical(samples), name)
            best[key] = min(best.get(key, result), result)
        return {key: name for key, (_, name) in best.items()}

    def _key(self, node: Sequence[Candidate]) -> str:
        """A hash of device, threads, the option `tuning`, and the candidates' functions and parameters."""
        functions = [
            (c.name, [(function_of(launch), parameters_of(launch)) for launch in c.launches]) for c in node
        ]
        files = tuple(sorted({launch.instance.source for c in node for launch in c.launches}))
        device = self._backend.capabilities
        content = repr((device.key, device.compute_units, self._effort, functions, _digest_of(files)))
        return hashlib.sha256(content.encode()).hexdigest()

    def _recall(self, key: str) -> str | None:
        """The winner of an earlier start."""
        found = self._backend.cache.read("tuning", key)
        return None if found is None else found.decode()

    def _remember(self, key: str, winner: str) -> None:
        """Keep a winner for later starts."""
        self._backend.cache.write("tuning", key, winner.encode())


@cache
def _digest_of(files: tuple[str, ...]) -> str:
    text = "".join(kernel_source(name) for name in ("common.cl", *files))
    return hashlib.sha256(text.encode()).hexdigest()


def _weight(candidate: Candidate) -> int:
    """An estimate of a candidate's time, in flops."""
    return sum(launch.flops + _BYTE_WEIGHT * launch.bytes for launch in candidate.launches)


def _typical(samples: Sequence[float]) -> float:
    """The lower quartile: other load only ever adds time."""
    return sorted(samples)[len(samples) // 4]


def _segments(recording: Recording, length: int) -> list[Entry]:
    """Persistent segments of at most `length` layers, whose constants lie in one buffer each."""
    ends, first = [0], 0
    for layer, number in enumerate(recording.buffers):
        if layer - first == length or number != recording.buffers[first]:
            ends.append(layer)
            first = layer
    ends.append(len(recording.launches))
    return [recording.segment(start, end) for start, end in pairwise(ends)]
