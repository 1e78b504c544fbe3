"""The profile in a result: what each kernel and operator took, in a process of its own."""

from typing import Literal

from pydantic import Field

from agent.wire.bounded import MAX_FACTS, MAX_PROFILED, Count, Key, Text, Wire

ProfileDetail = Literal["ops", "kernels"]


class ProfiledTime(Wire):
    """Nanoseconds over the rounds: the median, the first, the mean."""

    time_ns: float = Field(ge=0)
    first_ns: float = Field(ge=0)
    mean_ns: float = Field(ge=0)


class ProfiledRow(ProfiledTime):
    """A kernel, a CPU operator or a partition, as `runtime.common.profile.ProfileRow`."""

    step: Count
    place: Literal["kernel", "partition", "cpu"]
    name: Text
    label: Text
    operators: tuple[Count, ...] = Field(max_length=MAX_PROFILED)
    flops: Count
    bytes: Count


class ProfiledOperator(ProfiledTime):
    """An operator that ran, as `runtime.common.profile.OperatorTime`; `tensors`: names of its outputs."""

    index: Count
    name: Text
    tensors: Text
    place: Literal["kernel", "partition", "cpu"]
    is_divided: bool


class MeasuredPeaks(Wire):
    """The rates of the device in two small programs: fp32 arithmetic in GFLOP/s, memory in GB/s."""

    gflops: float = Field(gt=0)
    gigabytes: float = Field(gt=0)


class Profile(Wire):
    """One process in which each kernel was run by itself and waited for: no figure of it is a latency.

    `rows` are there where `kernels` were asked for. `run_ns`: the median of runs that nothing was timed in;
    `sums_ns`: what the rows of each round took together. `left_out`: operators and rows beyond those listed,
    which took `left_out_ns`. Where there is no profile, `missing` says why under "profile"; under "peaks" why
    there are none.
    """

    detail: ProfileDetail
    rounds: Count = 0
    run_ns: float = Field(default=0, ge=0)
    sums_ns: tuple[Count, ...] = Field(default=(), max_length=MAX_PROFILED)
    stages_ns: dict[Key, Count] = Field(default_factory=dict, max_length=MAX_FACTS)
    operators: tuple[ProfiledOperator, ...] = Field(default=(), max_length=MAX_PROFILED)
    rows: tuple[ProfiledRow, ...] = Field(default=(), max_length=MAX_PROFILED)
    peaks: MeasuredPeaks | None = None
    left_out: Count = 0
    left_out_ns: float = Field(default=0, ge=0)
    missing: dict[Key, Text] = Field(default_factory=dict, max_length=MAX_FACTS)
