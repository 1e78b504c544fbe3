"""Chooses a candidate for each node and the way to enqueue them, by measurements that are kept on disk."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
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
"""Timed rounds, by the option `tuning`, behind one that warms up. Chosen: of 9 samples the lower quartile is
the third; more rounds distinguish closer candidates, and take longer."""

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

    def shortlist(self, alternatives: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """The candidates that the option `tuning` allows; compiling is slow, so light nodes get one."""
        keys = [self._key(node) for node in alternatives]
        weights: dict[str, int] = {}
        for key, node in zip(keys, alternatives, strict=True):
            weights[key] = weights.get(key, 0) + _weight(node[0])
        light = _LIGHT_SHARE[self._effort] * sum(weights.values())
        most = _SHORTLIST[self._effort]
        return [
            list(node[: most if weights[key] >= light else 1])
            for key, node in zip(keys, alternatives, strict=True)
        ]

    def choose(
        self,
        graph: Graph,
        alternatives: Sequence[Sequence[Candidate]],
        source: Source,
        program: Program,
    ) -> list[Stage]:
        """One candidate for each node."""
        keys = [self._key(node) for node in alternatives]
        winners = {key: name for key in set(keys) if (name := self._recall(key)) is not None}
        missing = {
            key for key, node in zip(keys, alternatives, strict=True) if len(node) > 1 and key not in winners
        }
        if missing:
            contention = Contention()
            measured = self._measure(graph, alternatives, keys, missing, source, program)
            # What was found while other programs had the cores holds for this start only.
            if not contention.is_disturbed():
                for key, name in measured.items():
                    self._remember(key, name)
            winners |= measured
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

    def _measure(
        self,
        graph: Graph,
        alternatives: Sequence[Sequence[Candidate]],
        keys: Sequence[str],
        missing: set[str],
        source: Source,
        program: Program,
    ) -> dict[str, str]:
        """Time the candidates of each missing key, and return the name of the fastest for each.

        Rounds go through the whole graph, so that caches are as cold as in use and a disturbance hits all.
        """
        stages: list[Stage] = []
        owners: list[str] = []
        seen: set[str] = set()
        for position, (key, node) in enumerate(zip(keys, alternatives, strict=True)):
            if key in missing and key not in seen:
                seen.add(key)
                stages += [Stage(position, candidate) for candidate in node]
                owners += [key] * len(node)
        # The defaults have room; beside all others they may not, and then they are what runs.
        device = self._backend.capabilities
        if shortage(place(graph, stages, device.max_allocation_bytes), device) is not None:
            return {}
        # All candidates of a node write the node's buffer in turn: times are compared here, not results.
        recording = self._backend.record(graph, stages, source, program)
        timed = recording.timer()
        entries = [recording.entry(layer) for layer in range(len(recording.launches))]
        times: dict[tuple[str, str], list[int]] = {}
        for attempt in range(_ROUNDS[self._effort] + 1):
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
        files = sorted({launch.instance.source for c in node for launch in c.launches})
        texts = [kernel_source(name) for name in ("common.cl", *files)]
        device = self._backend.capabilities
        content = repr((device.key, device.compute_units, self._effort, functions, texts))
        return hashlib.sha256(content.encode()).hexdigest()

    def _recall(self, key: str) -> str | None:
        """The winner of an earlier start."""
        found = self._backend.cache.read("tuning", key)
        return None if found is None else found.decode()

    def _remember(self, key: str, winner: str) -> None:
        """Keep a winner for later starts."""
        self._backend.cache.write("tuning", key, winner.encode())


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
