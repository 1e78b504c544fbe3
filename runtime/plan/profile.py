"""Makes a profile (`runtime.common.profile`) of the times that the steps of several runs took."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from statistics import fmean, median
from typing import Literal, NamedTuple, TypeAlias

from runtime.common.profile import ModelProfile, OperatorTime, Place, ProfileRow
from runtime.delegates.abilities import KernelTime
from runtime.model.arithmetic import operator_macs
from runtime.model.graph import Operator, Subgraph


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step of one run: `time_ns` on the host; `kernels` of a delegate that tells them."""

    operators: tuple[int, ...]
    on_cpu: bool
    time_ns: int
    kernels: tuple[KernelTime, ...] = ()


Run: TypeAlias = Sequence[StepTime]


class _Times(NamedTuple):
    """Nanoseconds of one row: the median, the first and the mean."""

    median: float
    first: float
    mean: float

    def part(self, share: float) -> "_Times":
        return _Times(self.median * share, self.first * share, self.mean * share)

    def plus(self, other: "_Times") -> "_Times":
        return _Times(self.median + other.median, self.first + other.first, self.mean + other.mean)


_NOTHING = _Times(0.0, 0.0, 0.0)


def model_profile(
    graph: Subgraph, shapes: Mapping[int, tuple[int, ...]], runs: Sequence[Run], run_times: Sequence[int]
) -> ModelProfile:
    """Put runs of one model together; those whose steps differ from the last one's are left out.

    `run_times` are nanoseconds of runs without a profile. Raises ValueError where there is no run.
    """
    if not runs or not run_times:
        raise ValueError("a profile needs at least one run")
    alike = [list(_times(run)) for run in runs if _form(run) == _form(runs[-1])]
    times = [_Times(median(sample), sample[0], fmean(sample)) for sample in zip(*alike, strict=True)]
    total = sum(time.median for time in times)
    rows = tuple(_rows(runs[-1], graph, shapes, times, total))
    operators = tuple(_operators(graph, shapes, rows, total))
    return ModelProfile(len(alike), median(run_times), tuple(map(sum, alike)), rows, operators)


def _form(run: Run) -> list[object]:
    return [(step.operators, [kernel.function for kernel in step.kernels]) for step in run]


def _times(run: Run) -> Iterator[int]:
    for step in run:
        yield from [kernel.time_ns for kernel in step.kernels] or [step.time_ns]


def _rows(
    run: Run, graph: Subgraph, shapes: Mapping[int, tuple[int, ...]], times: Sequence[_Times], total: float
) -> Iterator[ProfileRow]:
    # Taken in the order in which `_times` gives them: kernels where a step tells any, else the step.
    taken = iter(times)
    for number, step in enumerate(run):
        for kernel in step.kernels:
            time = next(taken)
            yield ProfileRow(
                number, "kernel", kernel.function, kernel.label, kernel.operators, *time,
                _part(time.median, total), kernel.flops, kernel.bytes,
            )  # fmt: skip
        if not step.kernels:
            time = next(taken)
            place: Place = "cpu" if step.on_cpu else "partition"
            name = graph.operators[step.operators[0]].name if step.on_cpu else "partition"
            macs = sum(operator_macs(graph.operators[index], graph, shapes) for index in step.operators)
            yield ProfileRow(
                number, place, name, "", step.operators, *time, _part(time.median, total), 2 * macs, 0
            )  # fmt: skip


def _operators(
    graph: Subgraph, shapes: Mapping[int, tuple[int, ...]], rows: Sequence[ProfileRow], total: float
) -> Iterator[OperatorTime]:
    times: dict[int, _Times] = defaultdict(lambda: _NOTHING)
    places: dict[int, Place] = {}
    divided: set[int] = set()
    for row in rows:
        works = [_work(graph.operators[index], graph, shapes) for index in row.operators]
        whole = _Times(row.time_ns, row.first_ns, row.mean_ns)
        for index, work in zip(row.operators, works, strict=True):
            # The sum is not 0: every work is 1 at least.
            times[index] = times[index].plus(whole.part(work / sum(works)))
            places[index] = row.place
        if len(row.operators) > 1:
            divided.update(row.operators)
    for operator in graph.operators:
        index = operator.index
        place: Place | Literal["none"] = places.get(index, "none")
        names = ", ".join(graph.tensors[tensor].name for tensor in operator.outputs if tensor >= 0)
        yield OperatorTime(
            index, operator.name, names, place, *times[index], _part(times[index].median, total),
            is_divided=index in divided,
        )  # fmt: skip


def _work(operator: Operator, graph: Subgraph, shapes: Mapping[int, tuple[int, ...]]) -> int:
    """Estimate the work by which a kernel's time is divided: products, and an operation for each result."""
    results = sum(prod(shapes[tensor]) for tensor in operator.outputs if tensor in shapes)
    return max(1, 2 * operator_macs(operator, graph, shapes) + results)


def _part(time: float, total: float) -> float:
    return time / total if total else 0.0


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
