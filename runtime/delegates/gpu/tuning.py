"""Chooses a candidate for each node and the way to enqueue them, by measurements that are kept on disk."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from itertools import count
from time import perf_counter

from runtime.delegates.gpu.backends.base import Backend, Entry, Program, Recording
from runtime.delegates.gpu.contention import Contention
from runtime.delegates.gpu.graph import Graph
from runtime.delegates.gpu.kept_choices import KeptChoices
from runtime.delegates.gpu.lowering.spec import Candidate
from runtime.delegates.gpu.memory import Stage, place, shortage
from runtime.delegates.gpu.options import Options
from runtime.delegates.gpu.schedules import plain, segments
from runtime.delegates.gpu.source import Source
from runtime.delegates.gpu.watch import SpinWatch

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

_SCHEDULE_ROUNDS = {"none": 5, "fast": 7, "exhaustive": 31}
"""Most rounds in which the schedules are compared, by the option `tuning`; odd, and even "none" must measure,
as no rule tells which schedule is faster."""

_FEWEST_SCHEDULE_ROUNDS = 3
"""Rounds that are run however long they take. With fewer, one disturbed run could choose the schedule."""

_HOPELESS = 1.1
"""Ratio to the fastest schedule's time above which one takes no further part, once the fewest rounds are run.
Undisturbed runs of one schedule differ by a few percent; smaller could drop the fastest for a disturbance in
all its rounds, larger runs those that cannot win for longer."""

_SCHEDULE_SECONDS = 1.0
"""Seconds after which no further round begins, so that the first result of a large model does not wait for a
choice that gains it little: the longer a run, the smaller the share of its launches."""

_SECOND_LOOK_SECONDS = 0.25
"""Seconds that the schedules are compared for once more where the plain one leads. The rounds of a small
model are over in 20 milliseconds, less than one disturbance lasts and than the kernel counts as one; shorter
lets a disturbance choose, longer delays the first result of a model whose plain schedule is the fastest."""

_SEGMENT_LENGTHS = ("16", "100000")
"""Most layers of a persistent segment, as the names under which a schedule is kept; the second means the
whole graph. Short segments lose a launch each, and end sooner when another program takes a core away."""

_PLAIN = "0"
"""The name under which the plain schedule is kept: layers of a persistent segment, of which it has none."""

_STARVED = 8.0
"""Ratio to the plain schedule's time above which a persistent one takes no further part after a single round:
another program has the core on which its threads wait for each other, and each run may take seconds. Smaller
could drop the fastest for one disturbance; larger lets a start on a busy machine wait for more such runs."""

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
        self._kept = KeptChoices.of(backend.capabilities, backend.cache, options)
        self._persistent = options.persistent
        self.is_settled = True
        """False once candidates were chosen by times that hold for this start only."""

    @property
    def choices(self) -> Mapping[str, str]:
        """What was chosen by timing, in this start or in an earlier one: names by keys."""
        return self._kept.made

    def shortlist(self, alternatives: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """See `KeptChoices.shortlist`."""
        return self._kept.shortlist(alternatives)

    def choose(
        self,
        graph: Graph,
        alternatives: Sequence[Sequence[Candidate]],
        source: Source,
        program: Program,
    ) -> list[Stage]:
        """One candidate for each node."""
        keys = [self._kept.key(node) if len(node) > 1 else "" for node in alternatives]
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
            self.is_settled = not contention.is_disturbed()
            keep = self._kept.remember if self.is_settled else self._kept.note
            for key, name in winners.items():
                keep(key, name)
            for key in compared.keys() - winners.keys():
                self._kept.note(key, compared[key][0].candidate.name)
        stages = []
        for position, (key, node) in enumerate(zip(keys, alternatives, strict=True)):
            named = [candidate for candidate in node if candidate.name == winners.get(key)]
            stages.append(Stage(position, (named or list(node))[0]))
        return stages

    def schedule(self, recording: Recording) -> SpinWatch[list[Entry]]:
        """How the layers are enqueued: plainly, or in persistent segments (PoCL's CPU devices only).

        A load that nothing reports, as of the host that this machine shares, delays spinning segments alone.
        So where the plain schedule leads they are compared for longer, and it is kept once two starts have
        found it the fastest.
        """
        layers = len(recording.launches)
        enqueued = plain(recording, shares_one_kernel=self._backend.capabilities.shares_one_kernel)
        # A single layer has no further launch to save.
        if self._persistent == "off" or not self._may_persist() or layers < 2:
            return SpinWatch(enqueued, enqueued)
        if self._persistent == "on":
            whole = segments(recording, layers)
            return SpinWatch(whole, whole)
        key = self._kept.schedule_key(recording.launches)
        length = self._kept.recall(key)
        if length is None:
            schedules = {size: segments(recording, int(size)) for size in _SEGMENT_LENGTHS}
            schedules[_PLAIN] = enqueued
            contention = Contention()
            length = self._fastest(recording, schedules)
            if length == _PLAIN:
                length = self._fastest(recording, schedules, _SECOND_LOOK_SECONDS)
            if contention.is_disturbed():
                self._kept.note(key, length)
            elif length == _PLAIN:
                self._kept.remember_if_again(key, length)
            else:
                self._kept.remember(key, length)
        preferred = segments(recording, int(length)) if length in _SEGMENT_LENGTHS else enqueued
        return SpinWatch(preferred, enqueued)

    def _may_persist(self) -> bool:
        """True where the barrier of a segment is known to hold.

        All groups must run at the same time, as on PoCL's threads, and the compiler must have fences of the
        whole device, as PoCL's clang has. That has been tried on x86 only, whose stores stay in order anyway.
        """
        device = self._backend.capabilities
        return device.shares_one_kernel and platform.machine() in _TRIED_MACHINES

    def _fastest(
        self, recording: Recording, schedules: Mapping[str, Sequence[Entry]], least_seconds: float = 0.0
    ) -> str:
        """The name of the schedule that is fastest in interleaved runs; a persistent one must win clearly.

        Where other programs starve the spinning ones, few rounds are enough to see it. None is given up as
        slower, nor the comparison ended, before `least_seconds`.
        """
        times: dict[str, list[float]] = {name: [] for name in schedules}
        for entries in schedules.values():
            recording.run(entries)
        started = perf_counter()
        typical: dict[str, float] = {}
        contenders = dict(schedules)
        for attempt in count():
            if attempt:
                limit = _STARVED * typical[_PLAIN]
                took = perf_counter() - started
                if attempt >= _FEWEST_SCHEDULE_ROUNDS and took >= least_seconds:
                    # Of those still timed: one that was dropped may have looked faster in its few rounds.
                    limit = _HOPELESS * min(typical[name] for name in contenders)
                contenders = {name: found for name, found in contenders.items() if typical[name] <= limit}
                is_late = attempt >= _FEWEST_SCHEDULE_ROUNDS and took > _SCHEDULE_SECONDS
                is_enough = attempt >= _SCHEDULE_ROUNDS[self._effort] and took >= least_seconds
                if len(contenders) == 1 or is_late or is_enough:
                    break
            for name, entries in contenders.items():
                start = perf_counter()
                recording.run(entries)
                times[name].append(perf_counter() - start)
                typical[name] = _typical(times[name]) * (1.0 if name == _PLAIN else _MARGIN)
        return min(contenders, key=lambda name: typical[name])

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


def _typical(samples: Sequence[float]) -> float:
    """The lower quartile: other load only ever adds time."""
    return sorted(samples)[len(samples) // 4]
