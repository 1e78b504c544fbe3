"""The profile in a result: what each kernel and operator took, in a process of its own; and the advice."""

from typing import Final, Literal

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


MAX_ADVICE: Final = 64
"""Most pieces of advice of a model: some dozen rules, of which one names each count of channels."""

MAX_ADVISED: Final = 512
"""Most operators that a piece names; its finding counts all of them."""


class AdvicePiece(Wire):
    """A rule of LiteRT's documents that a model breaks: the operators, what changing them saves, who says so.

    `bytes`: of a run; `ms`: what these operators take together, null where nothing was profiled.
    """

    rule: Text
    operators: tuple[Count, ...] = Field(default=(), max_length=MAX_ADVISED)
    finding: Text
    gain: Text
    source: Text
    bytes: Count = 0
    ms: float | None = None


class Advice(Wire):
    """A verdict on a model and a delegate, from the plan of its run.

    `text`: the verdict in words. `cpu_macs_share`: the share of the products that stays on the CPU;
    `cpu_time_share`: of the time, null where nothing was profiled. `to_change`: how many operators the pieces
    name or the CPU runs.
    """

    verdict: Literal["suits", "change", "not"]
    text: Text
    to_change: Count
    cpu_macs_share: float = Field(ge=0, le=1)
    cpu_time_share: float | None = Field(default=None, ge=0, le=1)
    pieces: tuple[AdvicePiece, ...] = Field(default=(), max_length=MAX_ADVICE)


class Explained(Wire):
    """A delegate's answer on a model before a measurement: the operators it would take, or why none."""

    delegated_ops: Count = 0
    total_ops: Count = 0
    reasons: dict[Text, Count] = Field(default_factory=dict)
    obstacle: Text = ""
    advice: Advice | None = None
