"""LiteRT's profiler of a compiled model: the times of the runs between start and stop, event by event."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from runtime.model.graph import Subgraph
from runtime.plan.profile import StepTime

CAUTION = (
    "Each kernel was run by itself and waited for: the sum is not the latency of a run, and a run that is "
    "profiled takes longer."
)


@dataclass(frozen=True, slots=True)
class ProfiledEvent:
    """A kernel of a delegate, an operator of the CPU, or a partition whose delegate tells no kernels.

    `tag` is the function's or the operator's name, `run` the number of the run since the last reset.
    """

    tag: str
    event_source: Literal["delegate", "cpu"]
    operators: tuple[int, ...]
    elapsed_time_us: float
    run: int


class Profiler:
    """The calls of LiteRT's `Profiler`, in Python's spelling. While it is on, runs are not asynchronous."""

    def __init__(self) -> None:
        self._runs: list[tuple[Subgraph, list[StepTime]]] = []
        self._is_on = False

    @property
    def is_profiling(self) -> bool:
        """True between `start_profiling` and `stop_profiling`."""
        return self._is_on

    def start_profiling(self) -> None:
        """Note what the runs that follow take; those that were noted before stay."""
        self._is_on = True

    def stop_profiling(self) -> None:
        """Let runs be as fast as before."""
        self._is_on = False

    def reset(self) -> None:
        """Forget all events."""
        self._runs = []

    def noting(self, graph: Subgraph) -> list[StepTime] | None:
        """Return the list for the times of a run that begins now; None while the profiler is off."""
        if not self._is_on:
            return None
        self._runs.append((graph, []))
        return self._runs[-1][1]

    def get_num_events(self) -> int:
        """Return the number of events."""
        return len(self.get_events())

    def get_events(self) -> tuple[ProfiledEvent, ...]:
        """All events, in the order in which they ran."""
        return tuple(self._events())

    def get_profile_summary(self) -> str:
        """Return a table of the tags, slowest first: count, microseconds of one, and the share of all."""
        times: dict[str, list[float]] = defaultdict(list)
        for event in self._events():
            times[event.tag].append(event.elapsed_time_us)
        total = sum(map(sum, times.values()))
        lines = [f"{len(self._runs)} profiled run(s). {CAUTION}"]
        for tag, found in sorted(times.items(), key=lambda item: -sum(item[1])):
            share = 100 * sum(found) / total if total else 0.0
            lines.append(f"{tag:<48} {len(found):>7} x {sum(found) / len(found):>12.1f} us {share:>6.2f} %")
        return "\n".join(lines)

    def _events(self) -> Iterator[ProfiledEvent]:
        for number, (graph, steps) in enumerate(self._runs):
            for step in steps:
                for kernel in step.kernels:
                    microseconds = kernel.time_ns / 1e3
                    yield ProfiledEvent(kernel.function, "delegate", kernel.operators, microseconds, number)
                if not step.kernels:
                    tag = graph.operators[step.operators[0]].name if step.on_cpu else "partition"
                    source: Literal["delegate", "cpu"] = "cpu" if step.on_cpu else "delegate"
                    yield ProfiledEvent(tag, source, step.operators, step.time_ns / 1e3, number)
