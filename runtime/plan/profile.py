"""A profile: the times of the kernels of a run, and of each operator and type of operator."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from statistics import median
from typing import Literal, TypeAlias

from runtime.delegates.abilities import KernelTime
from runtime.model.arithmetic import operator_macs
from runtime.model.graph import Operator, Subgraph

Place = Literal["kernel", "partition", "cpu"]
"""What a row is: a kernel of a delegate, a partition whose delegate tells no kernels, a CPU operator."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step of one run: `time_ns` on the host; `kernels` of a delegate that tells them."""

    operators: tuple[int, ...]
    on_cpu: bool
    time_ns: int
    kernels: tuple[KernelTime, ...] = ()


Run: TypeAlias = Sequence[StepTime]


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """A kernel, a CPU operator or a partition: the median of its times, and its share of their sum, 0 to 1.

    `step` counts the steps of the run; `flops` and `bytes` are 0 where nobody counts them.
    """

    step: int
    place: Place
    name: str
    label: str
    operators: tuple[int, ...]
    time_ns: float
    share: float
    flops: int
    bytes: int

    @property
    def gflops(self) -> float:
        """Arithmetic in GFLOP/s."""
        return self.flops / self.time_ns if self.time_ns else 0.0

    @property
    def gigabytes(self) -> float:
        """Traffic in GB/s, by the family's count of bytes."""
        return self.bytes / self.time_ns if self.time_ns else 0.0


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """An operator of the model, and what of the rows' times is its.

    The time of a kernel of several operators is divided by their estimated work, and `is_divided` says so.
    """

    index: int
    name: str
    place: Place | Literal["none"]
    time_ns: float
    share: float
    is_divided: bool


@dataclass(frozen=True, slots=True)
class TypeTime:
    """All operators of one type."""

    name: str
    count: int
    time_ns: float
    share: float


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """Medians over `rounds` runs. `run_ns` is the latency of runs that nothing was timed in.

    `sum_ns`, the sum of the rows, is not the latency of a run: each kernel was run by itself and waited for,
    and transfers are in no row.
    """

    rounds: int
    run_ns: float
    sum_ns: float
    rows: tuple[ProfileRow, ...]
    operators: tuple[OperatorTime, ...]
    types: tuple[TypeTime, ...]

    @property
    def caution(self) -> str:
        """The limits of the figures, in a sentence."""
        return (
            f"The sum of the rows, {self.sum_ns / 1e6:.3f} ms, is not the latency of a run, "
            f"{self.run_ns / 1e6:.3f} ms: each kernel was run by itself and waited for, and copies between "
            "host and device are in no row."
        )


def model_profile(
    graph: Subgraph, shapes: Mapping[int, tuple[int, ...]], runs: Sequence[Run], run_times: Sequence[int]
) -> ModelProfile:
    """Put runs of one model together; those whose steps differ from the last one's are left out.

    `run_times` are nanoseconds of runs without a profile. Raises ValueError where there is no run.
    """
    if not runs or not run_times:
        raise ValueError("a profile needs at least one run")
    alike = [run for run in runs if _form(run) == _form(runs[-1])]
    times = [median(sample) for sample in zip(*(_times(run) for run in alike), strict=True)]
    total = sum(times)
    rows = tuple(_rows(runs[-1], graph, shapes, times, total))
    operators = tuple(_operators(graph, shapes, rows, total))
    return ModelProfile(len(alike), median(run_times), total, rows, operators, _types(operators, total))


def _form(run: Run) -> list[object]:
    return [(step.operators, [kernel.function for kernel in step.kernels]) for step in run]


def _times(run: Run) -> Iterator[int]:
    for step in run:
        yield from [kernel.time_ns for kernel in step.kernels] or [step.time_ns]


def _rows(
    run: Run, graph: Subgraph, shapes: Mapping[int, tuple[int, ...]], times: Sequence[float], total: float
) -> Iterator[ProfileRow]:
    taken = iter(times)
    for number, step in enumerate(run):
        for kernel in step.kernels:
            time = next(taken)
            yield ProfileRow(
                number, "kernel", kernel.function, kernel.label, kernel.operators, time, _part(time, total),
                kernel.flops, kernel.bytes,
            )  # fmt: skip
        if not step.kernels:
            time = next(taken)
            place: Place = "cpu" if step.on_cpu else "partition"
            name = graph.operators[step.operators[0]].name if step.on_cpu else "partition"
            macs = sum(operator_macs(graph.operators[index], graph, shapes) for index in step.operators)
            yield ProfileRow(
                number, place, name, "", step.operators, time, _part(time, total), 2 * macs, 0
            )  # fmt: skip


def _operators(
    graph: Subgraph, shapes: Mapping[int, tuple[int, ...]], rows: Sequence[ProfileRow], total: float
) -> Iterator[OperatorTime]:
    times: dict[int, float] = defaultdict(float)
    places: dict[int, Place] = {}
    divided: set[int] = set()
    for row in rows:
        works = [_work(graph.operators[index], graph, shapes) for index in row.operators]
        for index, work in zip(row.operators, works, strict=True):
            times[index] += row.time_ns * work / sum(works)
            places[index] = row.place
        if len(row.operators) > 1:
            divided.update(row.operators)
    for operator in graph.operators:
        index = operator.index
        yield OperatorTime(
            index=index,
            name=operator.name,
            place=places.get(index, "none"),
            time_ns=times[index],
            share=_part(times[index], total),
            is_divided=index in divided,
        )


def _types(operators: Sequence[OperatorTime], total: float) -> tuple[TypeTime, ...]:
    """Return the types of operators that took time, the slowest first."""
    found: dict[str, list[float]] = defaultdict(list)
    for operator in operators:
        if operator.place != "none":
            found[operator.name].append(operator.time_ns)
    rows = (TypeTime(name, len(times), sum(times), _part(sum(times), total)) for name, times in found.items())
    return tuple(sorted(rows, key=lambda row: -row.time_ns))


def _work(operator: Operator, graph: Subgraph, shapes: Mapping[int, tuple[int, ...]]) -> int:
    """Estimate the work by which a kernel's time is divided: products, and an operation for each result."""
    results = sum(prod(shapes[tensor]) for tensor in operator.outputs if tensor in shapes)
    return max(1, 2 * operator_macs(operator, graph, shapes) + results)


def _part(time: float, total: float) -> float:
    return time / total if total else 0.0
