"""A profile: the times of the kernels of a run, and of each operator and type of operator."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Place = Literal["kernel", "partition", "cpu"]
"""The kinds of rows: a kernel of a delegate, a partition whose delegate tells no kernels, a CPU operator."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """The rates of a device in two small programs of the same threads: fp32 arithmetic in GFLOP/s, and
    traffic of its memory, read and written, in GB/s.
    """

    gflops: float
    gigabytes: float


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """A kernel, a CPU operator or a partition: the median of its times, and its share of their sum, 0 to 1.

    `step` counts the steps of the run; `flops` and `bytes` are 0 where nobody counts them. `first_ns` and
    `mean_ns` are what LiteRT's tables show.
    """

    step: int
    place: Place
    name: str
    label: str
    operators: tuple[int, ...]
    time_ns: float
    first_ns: float
    mean_ns: float
    share: float
    flops: int
    bytes: int

    @property
    def gflops(self) -> float:
        """Arithmetic in GFLOP/s."""
        # One in a nanosecond is 10^9 in a second.
        return self.flops / self.time_ns if self.time_ns else 0.0

    @property
    def gigabytes(self) -> float:
        """Traffic in GB/s, by the family's count of bytes."""
        return self.bytes / self.time_ns if self.time_ns else 0.0


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """An operator of the model, its outputs' names, and what of the rows' times is its.

    The time of a kernel of several operators is divided by their estimated work, and `is_divided` says so.
    """

    index: int
    name: str
    tensors: str
    place: Place | Literal["none"]
    time_ns: float
    first_ns: float
    mean_ns: float
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

    `sums_ns` are the sums of the rows of each profiled run, `stages_ns` what the start took, by stage;
    `peaks` are None where `no_peaks` says why.
    """

    rounds: int
    run_ns: float
    sums_ns: tuple[int, ...]
    rows: tuple[ProfileRow, ...]
    operators: tuple[OperatorTime, ...]
    stages_ns: Mapping[str, int] = field(default_factory=dict)
    peaks: Peaks | None = None
    no_peaks: str = ""

    @property
    def sum_ns(self) -> float:
        """The sum of the rows, or of the operators of a profile without rows."""
        return sum(one.time_ns for one in self.rows or self.operators)

    @property
    def types(self) -> tuple[TypeTime, ...]:
        """The types of operators that took time, the slowest first."""
        found: dict[str, list[OperatorTime]] = defaultdict(list)
        for operator in self.operators:
            if operator.place != "none":
                found[operator.name].append(operator)
        rows = (
            TypeTime(name, len(ones), sum(one.time_ns for one in ones), sum(one.share for one in ones))
            for name, ones in found.items()
        )
        return tuple(sorted(rows, key=lambda row: -row.time_ns))

    @property
    def caution(self) -> str:
        """The sum of the rows beside the latency of a run, and where the difference goes."""
        outside_ns = self.run_ns - self.sum_ns
        begin = f"A run takes {self.run_ns / 1e6:.3f} ms, the sum of the rows is {self.sum_ns / 1e6:.3f} ms"
        if outside_ns > 0:
            return (
                f"{begin}. The other {outside_ns / 1e6:.3f} ms ({outside_ns / self.run_ns:.0%} of a run) are "
                "outside of kernels: copies between host and device, which are in no row, and what starts "
                "the run and waits for its end."
            )
        return (
            f"{begin}: each kernel was run by itself and waited for, which takes longer than in a run, where "
            "one follows the other. Copies between host and device are in no row."
        )
