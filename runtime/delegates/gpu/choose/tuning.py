"""Chooses a candidate for each node, by measurements that are kept on disk."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from time import perf_counter

from runtime.delegates.gpu.backends.base import Backend, Program, recorded
from runtime.delegates.gpu.choose.contention import described, disturbance, paused_share
from runtime.delegates.gpu.choose.kept_choices import KeptChoices, weight
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

BUDGET_S = {"none": 0.0, "fast": 0.3, "exhaustive": 60.0}
"""Seconds of wall clock that all timing of a delegate may take, packed weights of candidates included, by the
option `tuning`. What it does not suffice for is the rule's choice. More would delay the first result."""

_TIMED_BYTES = 16 << 20
"""Bytes of constants that candidates which are timed together may have, unless one node alone has more.
They are in memory beside the model, and packed before the clock is looked at again; smaller groups find more
of their constants in the caches than in use."""

_TIMED_FLOPS = 1 << 31
"""Estimated flops of a round over candidates that are timed together, unless one node alone has more: about
20 milliseconds of one core. Larger looks at the clock less often, smaller compares with warmer caches."""

_LAUNCH_NS = 1500
"""Nanoseconds that a further launch of a candidate costs beside its own time: a barrier, and the idle end of
the launch before. The lower end of what an enqueued kernel cost with PoCL, 1.5 to 2.5 microseconds on one
core."""


class Budget:
    """The seconds that are left for timing; all partitions of a delegate share them."""

    def __init__(self, effort: str) -> None:
        self.left_s = BUDGET_S[effort]

    @contextmanager
    def spent(self) -> Iterator[float]:
        """Take the block's time from the budget, and give it the clock's reading at which that would end."""
        start = perf_counter()
        try:
            yield start + self.left_s
        finally:
            self.left_s -= perf_counter() - start


class Tuner:
    """Measures candidates on the device, and keeps winners by device, driver, threads and functions.

    `disturbance` says why nothing can be timed now, or why what was timed is not kept; empty while all is
    well. The rule's choices of a disturbed start hold for this start alone.
    """

    def __init__(self, backend: Backend, options: Options, budget: Budget | None = None) -> None:
        self._backend = backend
        self._effort = options.tuning
        self._budget = budget or Budget(options.tuning)
        self._kept = KeptChoices.of(backend.capabilities, backend.cache, options)
        self.disturbance = ""

    @property
    def choices(self) -> Mapping[str, str]:
        """The choices by timing, in this start or in an earlier one: names by keys."""
        return self._kept.made

    def shortlist(self, alternatives: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """Return the candidates to compile; on a disturbed device one for each node."""
        found = self._kept.shortlist(alternatives)
        undecided = [node for node in found if len(node) > 1]
        has_time = self._budget.left_s > 0
        # Before the compiler, which is not asked for what would not be timed.
        if undecided and has_time:
            self.disturbance = disturbance(self._backend.capabilities)
        if has_time and not self.disturbance:
            return found
        keep = self._kept.note if self.disturbance else self._kept.remember
        for node in undecided:
            keep(self._kept.key(node), node[0].name)
        return [node[:1] for node in found]

    def choose(
        self, graph: Graph, alternatives: Sequence[Sequence[Candidate]], source: Source, program: Program
    ) -> list[Stage]:
        """Return one candidate for each node."""
        keys = [self._kept.key(node) if len(node) > 1 else "" for node in alternatives]
        compared: dict[str, list[Stage]] = {}
        weights = Counter[str]()
        for position, (key, node) in enumerate(zip(keys, alternatives, strict=True)):
            if key:
                # Equal keys mean equal candidates, so the first of these nodes stands for all.
                compared.setdefault(key, [Stage(position, candidate) for candidate in node])
                weights[key] += weight(node[0])
        # The heaviest first: the budget may not suffice for all.
        heaviest = {key: compared[key] for key, _ in weights.most_common()}
        winners = self._timed(graph, heaviest, source, program) if compared else {}
        stages = []
        for position, (key, node) in enumerate(zip(keys, alternatives, strict=True)):
            named = [candidate for candidate in node if candidate.name == winners.get(key)]
            stages.append(Stage(position, (named or list(node))[0]))
        return stages

    def _timed(
        self, graph: Graph, compared: Mapping[str, Sequence[Stage]], source: Source, program: Program
    ) -> dict[str, str]:
        """Return the names of the fastest candidates by their nodes' keys; none of a disturbed device.

        They are kept, and so are the rule's choices for what did not fit into the budget.
        """
        winners: dict[str, str] = {}
        groups = self._groups(graph, compared)
        with self._budget.spent() as end:
            samples: dict[tuple[str, str], list[int]] = {}
            for left, group in zip(range(len(groups), 0, -1), groups, strict=True):
                now = perf_counter()
                if now >= end:
                    break
                timed = {key: compared[key] for key in group}
                # Each group gets an equal share of the time left;
                # whatever it does not use goes to the groups after it.
                samples |= self._measure(graph, timed, source, program, (now + (end - now) / left, end))
        self.disturbance = described(paused_share(samples.values()))
        if not self.disturbance:
            winners = _fastest(samples)
        for key, stages in compared.items():
            keep = self._kept.note if self.disturbance else self._kept.remember
            keep(key, winners.get(key, stages[0].candidate.name))
        return winners

    def _groups(self, graph: Graph, compared: Mapping[str, Sequence[Stage]]) -> list[list[str]]:
        """Group the nodes to time together, by their keys; leave out nodes whose candidates have no room.

        Large weights of all candidates at once would take several times the memory of the model.
        """
        groups: list[list[str]] = []
        size, flops = 0, 0
        for key, stages in compared.items():
            # The defaults have room; beside all others they may not, and then they are what runs.
            if self._lacks(graph, stages):
                continue
            needed = place(graph, stages, self._backend.capabilities).constant_bytes
            work = sum(weight(stage.candidate) for stage in stages)
            if not groups or size + needed > _TIMED_BYTES or flops + work > _TIMED_FLOPS:
                groups.append([])
                size, flops = 0, 0
            groups[-1].append(key)
            size, flops = size + needed, flops + work
        return groups

    def _lacks(self, graph: Graph, stages: Sequence[Stage]) -> bool:
        device = self._backend.capabilities
        return shortage(place(graph, stages, device), device) is not None

    def _measure(
        self,
        graph: Graph,
        compared: Mapping[str, Sequence[Stage]],
        source: Source,
        program: Program,
        ends: tuple[float, float],
    ) -> dict[tuple[str, str], list[int]]:
        """Time candidates, and return the nanoseconds of each by its node's key and its own name.

        Rounds go through all of them, so that caches are as cold as in use and a disturbance hits all. No
        further round begins behind the first of `ends`, readings of the clock, and no candidate has times
        where the second does not suffice for the fewest rounds.
        """
        stages = [stage for candidates in compared.values() for stage in candidates]
        owners = [key for key, candidates in compared.items() for _ in candidates]
        if self._lacks(graph, stages):
            return {}
        times: dict[tuple[str, str], list[int]] = {}
        # All candidates of a node write the node's buffer in turn: times are compared here, not results.
        with closing(recorded(self._backend, graph, stages, source, program)) as recording:
            timed = recording.timer()
            entries = [recording.entry(layer) for layer in range(len(recording.launches))]
            start = perf_counter()
            for attempt in range(_ROUNDS[self._effort] + 1):
                now = perf_counter()
                # Attempt 0 is the warm-up, so this many rounds have been timed.
                if attempt > _FEWEST_ROUNDS and now > ends[0]:
                    break
                # The warm-up round has just shown how long a round takes.
                if attempt == 1 and now + _FEWEST_ROUNDS * (now - start) > ends[1]:
                    break
                layer = 0
                for stage, key in zip(stages, owners, strict=True):
                    elapsed = _LAUNCH_NS * (len(stage.candidate.launches) - 1)
                    for _ in stage.candidate.launches:
                        elapsed += timed(entries[layer])
                        layer += 1
                    if attempt:
                        times.setdefault((key, stage.candidate.name), []).append(elapsed)
        return times


def _fastest(samples: Mapping[tuple[str, str], Sequence[int]]) -> dict[str, str]:
    """Return the name of the fastest candidate by its node's key, of times by keys and names."""
    best: dict[str, tuple[float, str]] = {}
    for (key, name), times in samples.items():
        result = (_typical(times), name)
        best[key] = min(best.get(key, result), result)
    return {key: name for key, (_, name) in best.items()}


def _typical(samples: Sequence[float]) -> float:
    """Return the lower quartile: other load only ever adds time."""
    return sorted(samples)[len(samples) // 4]
