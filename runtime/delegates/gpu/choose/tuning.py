"""Chooses a candidate for each node, by measurements that are kept on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter

from runtime.delegates.gpu.backends.base import Backend, Program
from runtime.delegates.gpu.choose.kept_choices import KeptChoices
from runtime.delegates.gpu.graph.graph import Graph
from runtime.delegates.gpu.layout.memory import Stage, place, shortage
from runtime.delegates.gpu.layout.source import Source
from runtime.delegates.gpu.lowering.spec import Candidate
from runtime.delegates.gpu.settings.options import Options

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

    @property
    def choices(self) -> Mapping[str, str]:
        """The choices by timing, in this start or in an earlier one: names by keys."""
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
            groups = self._groups(graph, compared)
            for group in groups:
                timed = {key: compared[key] for key in group}
                winners |= self._measure(graph, timed, source, program, 1 / len(groups))
            for key, name in winners.items():
                self._kept.remember(key, name)
            for key in compared.keys() - winners.keys():
                self._kept.note(key, compared[key][0].candidate.name)
        stages = []
        for position, (key, node) in enumerate(zip(keys, alternatives, strict=True)):
            named = [candidate for candidate in node if candidate.name == winners.get(key)]
            stages.append(Stage(position, (named or list(node))[0]))
        return stages

    def _groups(self, graph: Graph, compared: Mapping[str, Sequence[Stage]]) -> list[list[str]]:
        """Group the nodes to time together, by their keys; leave out nodes whose candidates have no room.

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
    """Return the lower quartile: other load only ever adds time."""
    return sorted(samples)[len(samples) // 4]
