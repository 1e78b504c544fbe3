"""The measurement in a result: times, memory, accuracy, delegation.

The types of the fields are in `agent.wire.bounded`; times ending in `_ns` are durations of a monotonic clock.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from agent.wire.bounded import (
    MAX_BLOCKS,
    MAX_COUNT,
    MAX_FACTS,
    MAX_FALLBACKS,
    MAX_OUTPUTS,
    MAX_SAMPLES,
    MAX_SLICES,
    MAX_WARNINGS,
    Count,
    Facts,
    Figure,
    Id,
    Integer,
    Key,
    Logarithm,
    NonNegative,
    Sha256,
    Text,
    Wire,
)
from agent.wire.labelled import LabelledScore
from agent.wire.passes import PassFigures
from agent.wire.profile import Advice


class Fallback(Wire):
    """An operator that stayed on the CPU."""

    index: Count
    op: Text
    reason: Text


class Delegation(Wire):
    """The delegation report of a partition delegate. `fallbacks`: the first `MAX_FALLBACKS` of them."""

    status: Literal["full", "partial", "none"]
    delegated_ops: Count
    total_ops: Count
    partitions: Count
    fallbacks: tuple[Fallback, ...] = Field(default=(), max_length=MAX_FALLBACKS)


class TimedSlice(Wire):
    """One slice of a process: the round of its block, its invokes, the share of it that others took.

    `kept`: whether it counts: not one that was disturbed and repeated. `cpu_ns`: CPU time of all its threads.
    """

    round: Count
    runs: Count
    cpu_ns: Count | None = None
    taken: float = Field(default=0.0, ge=0)
    kept: bool = True


class ProcessSamples(Wire):
    """One process that opened the model; lists are in the order of measurement, times in ns.

    The cold one, which finds empty caches, times its start alone; those of one `tuning` share what it chose.
    `init_ns` before model load to ready to invoke; `first_ns` the first invoke, completed; every invoke
    sample is host input to readable host output (`e2e`). `start_ns`: when each of these began, from the
    first one; invoke i, also of the warm-up, ran input set i mod `input_sets`. `memory_peak_bytes` is the
    growth of VmHWM from just before the model is loaded. `stages_ns` are parts of `init_ns` by name, as far
    as they were told; `memory_bytes` is the growth of VmRSS at `load`, `ready` and `steady`, and the bytes on
    the `device`. `device_busy_ns` and `queue_delay_ns` come from invokes after the timed ones.
    `transfer_ns` and `transfer_bytes` are of further invokes: what they copied `in` and `out`, how long they
    took with these copies (`copied`), and on buffers that spare them (`bound`).
    `slices` divide `invoke_ns` in their order; none in results of before it was timed by slices.
    """

    index: Count
    cache: Literal["cold", "warm"]
    init_ns: Integer
    first_ns: Integer
    warmup_ns: tuple[Integer, ...] = Field(max_length=MAX_SAMPLES)
    invoke_ns: tuple[Integer, ...] = Field(max_length=MAX_SAMPLES)
    batch: Count = 1
    memory_peak_bytes: Integer
    memory_before_bytes: Integer
    flags: tuple[Text, ...] = Field(default=(), max_length=MAX_WARNINGS)
    facts: Facts = Field(default_factory=dict)
    tuning: Count = 0
    start_ns: tuple[Integer, ...] = Field(default=(), max_length=MAX_SAMPLES)
    input_sets: Count = 0
    stages_ns: dict[Key, Integer] = Field(default_factory=dict, max_length=MAX_FACTS)
    memory_bytes: dict[Key, Integer] = Field(default_factory=dict, max_length=MAX_FACTS)
    device_busy_ns: tuple[Integer, ...] = Field(default=(), max_length=MAX_SAMPLES)
    queue_delay_ns: tuple[Integer, ...] = Field(default=(), max_length=MAX_SAMPLES)
    transfer_ns: dict[Key, Annotated[tuple[Integer, ...], Field(max_length=MAX_SAMPLES)]] = Field(
        default_factory=dict, max_length=MAX_FACTS
    )
    transfer_bytes: dict[Key, Integer] = Field(default_factory=dict, max_length=MAX_FACTS)
    slices: tuple[TimedSlice, ...] = Field(default=(), max_length=MAX_SLICES)

    def by_slice(self) -> Iterator[tuple[TimedSlice, tuple[int, ...]]]:
        """Yield each slice with its invokes in ns."""
        begin = 0
        for timed in self.slices:
            yield timed, self.invoke_ns[begin : begin + timed.runs]
            begin += timed.runs

    def without_kept(self) -> "ProcessSamples":
        """Return the same samples, none of which counts."""
        slices = tuple(timed.model_copy(update={"kept": False}) for timed in self.slices)
        return self.model_copy(update={"slices": slices})

    @property
    def kept_ns(self) -> tuple[int, ...]:
        """The invokes that count, in the order of measurement."""
        if not self.slices:
            return self.invoke_ns
        return tuple(ns for timed, invokes in self.by_slice() if timed.kept for ns in invokes)

    @property
    def kept_runs(self) -> tuple[int, ...]:
        """The number of these in each slice, in order; none where nothing was timed by slices."""
        return tuple(timed.runs for timed in self.slices if timed.kept)


class Latency(Wire):
    """Summary in milliseconds. A percentile below its sample floor is null; `missing` says why, per field."""

    init: NonNegative | None
    init_warm: NonNegative | None
    first: NonNegative | None
    p50: NonNegative | None
    p90: NonNegative | None
    p99: NonNegative | None
    mean: NonNegative | None
    ci95: tuple[NonNegative, NonNegative] | None
    missing: Facts = Field(default_factory=dict)
    first_warm: NonNegative | None = None
    p95: NonNegative | None = None
    p90_ci95: tuple[NonNegative, NonNegative] | None = None
    p99_ci95: tuple[NonNegative, NonNegative] | None = None


class StartStages(Wire):
    """Parts of an init in milliseconds, of the process that has the lower median of `n` such processes.

    Null: not told by the delegate. `other` is what remains, so that all of them add up to the init shown.
    """

    parse: Figure | None
    partition: Figure | None
    compile: Figure | None
    tune: Figure | None
    upload: Figure | None
    other: Figure
    n: Count


class InitStages(Wire):
    """The stages of an init with empty (`cold`) and filled caches; `missing` says why one is null."""

    cold: StartStages | None = None
    warm: StartStages | None = None
    missing: Facts = Field(default_factory=dict)


class MemoryStages(Wire):
    """Growth of resident memory in bytes from just before the model is loaded; the largest of the processes.

    `load`: once the file is read; `ready`: ready to invoke; `steady`: after the last timed slice. `device`:
    what the delegate has allocated on its device. `missing` says why one is null.
    """

    load: Integer | None = None
    ready: Integer | None = None
    steady: Integer | None = None
    device: Integer | None = None
    missing: Facts = Field(default_factory=dict)


class DeviceTime(Wire):
    """One invoke in milliseconds by the events of the device, from a pass of its own: how long it computed,
    and how long its first piece of work waited. The mean over the processes of each one's median.

    `missing` says why one is null.
    """

    busy: Figure | None = None
    queue_delay: Figure | None = None
    missing: Facts = Field(default_factory=dict)


class Transfer(Wire):
    """The copies of one invoke between host and device, in bytes and in milliseconds of the host's.

    `p50_bound_ms`: an invoke on buffers that hold the inputs already and keep the outputs; `saved_ms`: what
    that takes off an invoke beside it. Times are the mean over the processes of each one's median. `missing`
    says why one is null.
    """

    in_ms: Figure | None = None
    out_ms: Figure | None = None
    in_bytes: Integer | None = None
    out_bytes: Integer | None = None
    p50_bound_ms: Figure | None = None
    saved_ms: Figure | None = None
    missing: Facts = Field(default_factory=dict)


class Installed(Wire):
    """Bytes of the files that a delegate consists of on the agent; null where `note` says why."""

    bytes: Integer | None = None
    note: Text = ""


class MatchedDetections(Wire):
    """Detections that have a partner in the reference, that lack one, and that were added, over all sets."""

    matched: Count
    missing: Count
    added: Count
    mean_iou: float | None


class OutputAccuracy(Wire):
    """One output of the model, the worst figures over its input sets. `verdict` null: not judged.

    `top1`: the share of rows whose largest value is at the same place. `nonfinite` counts NaN and Inf.
    `margin` as in `Accuracy`. `kind`: None in results that are older than kinds. `equal`: the share of equal
    elements of an index. `detections`: told at the boxes.
    """

    name: Text
    max_abs: float | None
    mean_abs: float | None
    rel_l2: float | None
    cosine: float | None
    top1: float | None
    nonfinite: Count
    verdict: Literal["pass", "fail"] | None
    margin: float | None = None
    kind: Literal["value", "index", "detections"] | None = None
    equal: float | None = None
    detections: MatchedDetections | None = None


class Accuracy(Wire):
    """The comparison of outputs with the reference. `verdict` null: not judged, `note` says why.

    `peer_rel_l2` is the distance of LiteRT's XNNPACK from the same reference, null where it did not run.
    `margin`: the error over its bound, by the rule of which it takes most; 1 is at the bound, null where
    there is none.
    """

    reference: Text | None
    max_abs: float | None
    rel_l2: float | None
    cosine: float | None
    verdict: Literal["pass", "fail"] | None
    rule: Text = ""
    note: Text = ""
    mean_abs: float | None = None
    top1: float | None = None
    nonfinite: Count = 0
    peer_rel_l2: float | None = None
    margin: float | None = None
    outputs: tuple[OutputAccuracy, ...] = Field(default=(), max_length=MAX_OUTPUTS)

    @classmethod
    def of_errors(cls, reference: str, note: str, errors: Mapping[str, float]) -> "Accuracy":
        """Return an accuracy of which a tool told the mean error of each output alone: it has no verdict."""
        unknown = dict.fromkeys(("max_abs", "rel_l2", "cosine"))
        told = list(errors.items())[:MAX_OUTPUTS]
        rest: dict[str, Any] = {"top1": None, "nonfinite": 0, "verdict": None, **unknown}
        outputs = tuple(OutputAccuracy(name=f"output {at}", mean_abs=error, **rest) for at, error in told)
        largest = max(errors.values())
        return cls(reference=reference, note=note, verdict=None, mean_abs=largest, outputs=outputs, **unknown)


class Quality(Wire):
    """The evidence for a measurement's quality; its grade follows from it (`runtime.common.verdict`).

    `void`: why the integrity of the measurement is broken, the gravest first; empty where it is whole.
    `doubts`: why its grade is at best fair.
    `allowance`: the logarithm of the factor by which others can have slowed the kept rounds: of the share s
    that they took, -ln(1 - s). Of `rounds` in `blocks`, `repeated` were disturbed and measured once more; of
    the blocks, `repeated_blocks`. `alternating`: whether the arms of a block were alive together and took
    turns by slices. `stopped`: why no further block was measured; `behind`: others are better where only the
    best was sought; `cancelled`: its attempt was, and it has less than was asked for. `facts`: observations
    that change nothing. `seen`: the signals that were watched; `unseen`: those that this machine does not
    have, each with the reason.
    """

    void: tuple[Text, ...] = Field(default=(), max_length=MAX_WARNINGS)
    doubts: tuple[Text, ...] = Field(default=(), max_length=MAX_WARNINGS)
    allowance: Logarithm = Field(default=0.0, ge=0)
    blocks: Count = 0
    rounds: Count = 0
    repeated: Count = 0
    repeated_blocks: Count = 0
    alternating: bool = False
    stopped: Literal["", "target", "decided", "behind", "blocks", "budget", "time", "cancelled"] = ""
    facts: tuple[Text, ...] = Field(default=(), max_length=MAX_WARNINGS)
    seen: tuple[Text, ...] = Field(default=(), max_length=MAX_WARNINGS)
    unseen: tuple[Text, ...] = Field(default=(), max_length=MAX_WARNINGS)


TOOK_TURNS: Final = "arms took turns by slices; a campaign of this delegate alone has its energy"
"""The note of an energy that a counter could have told of other turns: no fault of the cell's."""


class Energy(Wire):
    """Energy of one timed call in mJ, from a counter of the part that computes, all that it used meanwhile
    included: the mean over the processes, and its interval. Null where there is no counter; `note` says why.

    `ratio`: the energy of the baseline over it, by the blocks that have both. `rise_c`: by how many degrees
    Celsius the part got hotter while it was timed; `rise_note` says why it is null.
    """

    invoke_mj: Figure | None = None
    note: Text = ""
    ci95: tuple[Figure, Figure] | None = None
    ratio: Figure | None = None
    ratio_ci95: tuple[Figure, Figure] | None = None
    rise_c: Figure | None = None
    rise_note: Text = ""


class Tuning(Wire):
    """A delegate's choices by timing, as its option `choices` takes them, and their sha256.

    `choices` is null where the text is too long for the option. `processes`: the timed ones that ran it.
    """

    sha256: Sha256
    choices: Text | None
    processes: Count


class Variation(Wire):
    """The variation of a median by what is repeated, and where further repetitions help most.

    `level`: what the interval of p50 is over; `given_tuning`: all processes ran one tuning, so that it says
    nothing about another. `..._sd`: standard deviation that the level adds, as a share; null where it was
    not repeated; that of samples by the spread of batches of them. `..._s`: what one more costs, in seconds,
    without what is repeated within it. `..._advised`: rounds of a block (and the samples of a process in so
    many) and processes of a tuning by Kalibera and Jones, null where nothing tells; `units_advised` of the
    highest level for an interval of 1 % to either side.
    """

    level: Literal["process", "tuning"]
    given_tuning: bool
    tunings: Count
    processes: Count
    sample_sd: Figure | None
    process_sd: Figure | None
    tuning_sd: Figure | None
    sample_s: Figure
    process_s: Figure | None
    tuning_s: Figure | None
    samples_advised: Count | None
    processes_advised: Count | None
    units_advised: Count | None
    rounds_advised: Count | None = None


class Ratio(Wire):
    """The speed relative to a baseline: its time over this cell's, measured in the same blocks.

    `against` is for people; `baseline_id` is the digest of what the baseline is (`baseline_id`), `device_id`
    where it ran. `median`: the
    geometric mean over blocks of the ratio of the two medians, with its 95 % t interval, null below three
    blocks. The orders within the blocks follow from `seed`. `tunings`: where the blocks have several, it is
    the mean over those of their blocks, and the interval is over them; else 1. `allowance`: as of
    `Quality`, of the side from which others took more. `spread`: how the interval narrows with more blocks
    (`runtime.common.statistics.Estimate`).
    """

    against: Text
    baseline_id: Id
    device_id: Id
    median: Figure = Field(gt=0)
    ci95: tuple[NonNegative, NonNegative] | None
    blocks: int = Field(ge=1, le=MAX_COUNT)
    seed: Count
    tunings: int = Field(default=1, ge=1, le=MAX_COUNT)
    allowance: Logarithm = Field(default=0.0, ge=0)
    spread: float | None = Field(default=None, ge=0)


class BlockFigure(Wire):
    """One block of a cell, as its blocks are pooled.

    `p50_ns`: the median of an invoke. `log_ratio`: the natural logarithm of the baseline's time over it, null
    where no baseline ran in the block. `allowance`: as of `Quality`. Of its
    `rounds`, `repeated` were disturbed and measured once more; `again`: so was the whole block, and this is
    its second measurement. `tuning`: blocks of one number share what the
    delegate chose by timing; numbers of a result count on where blocks are added to it.
    """

    p50_ns: Figure = Field(gt=0)
    log_ratio: Logarithm | None = None
    allowance: Logarithm = Field(default=0.0, ge=0)
    rounds: Count
    repeated: Count = 0
    again: bool = False
    tuning: Count = 0


class Refinement(Wire):
    """The result of a cell to which blocks are added: those that it has, the oldest first.

    The agent measures at least one more, and reports the measurement over all of them, with these in front.
    It is of `environment_id` (`agent.wire.messages.environment_id`); an attempt that finds another one ends
    as `conditions_changed`, and measures nothing. `until_decided`: a verdict ends the blocks, too; else the
    plan's target alone does.
    """

    environment_id: Id
    blocks: tuple[BlockFigure, ...] = Field(min_length=1, max_length=MAX_BLOCKS)
    until_decided: bool = True


def baseline_id(delegate_kind: str, options: Mapping[str, Any]) -> str:
    """Return the first 12 hex digits of a digest of how a baseline is run."""
    what = {"delegate": delegate_kind, "options": dict(options)}
    text = json.dumps(what, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Measurement(PassFigures):
    """All figures of a measured cell. `samples_sha256` names the artifact with every `ProcessSamples` as
    JSON.

    `quality`: None in results from before it was judged, and where no process measured.
    `variation` is null where no two processes were timed; `tunings` is empty for a delegate that chooses
    nothing by timing. `advice` is null for a delegate that plans nothing. `cpu_ms`: CPU time of an invoke.
    `cache_bytes`: what its starts left in program caches that were empty.
    `ratio` is null for the baseline itself, and where no baseline was measured in the same blocks. `blocks`:
    what it is made of, in the order of measurement; empty in results from before they were kept.
    """

    latency_ms: Latency
    samples: Count
    memory_peak_bytes: Integer
    memory_peak_cold_bytes: Integer = 0
    accuracy: Accuracy
    delegation: Delegation | None
    settings: Facts
    samples_sha256: Sha256 | None = None
    warnings: tuple[Text, ...] = Field(default=(), max_length=MAX_WARNINGS)
    labelled: LabelledScore | None = None
    quality: Quality | None = None
    ratio: Ratio | None = None
    variation: Variation | None = None
    tunings: tuple[Tuning, ...] = Field(default=(), max_length=MAX_WARNINGS)
    energy: Energy = Field(default_factory=Energy)
    init: InitStages = Field(default_factory=InitStages)
    memory: MemoryStages = Field(default_factory=MemoryStages)
    installed: Installed = Field(default_factory=Installed)
    cpu_ms: Figure | None = None
    device: DeviceTime = Field(default_factory=DeviceTime)
    transfer: Transfer = Field(default_factory=Transfer)
    cache_bytes: Integer | None = None
    advice: Advice | None = None
    blocks: tuple[BlockFigure, ...] = Field(default=(), max_length=MAX_BLOCKS)

    @property
    def ended_early(self) -> bool:
        """Whether it has less than was asked for, because its attempt was cancelled or interrupted."""
        return self.quality is not None and self.quality.stopped == "cancelled"

    @property
    def artifacts(self) -> tuple[str, ...]:
        """The artifacts that belong to the result: its raw samples, and its answers to labelled data."""
        answers = None if self.labelled is None else self.labelled.answers_sha256
        return tuple(name for name in (self.samples_sha256, answers) if name is not None)

    def without_artifact(self, sha256: str) -> "Measurement":
        """Return the figures without the name of an artifact that nobody has."""
        update: dict[str, object] = {}
        if self.samples_sha256 == sha256:
            update["samples_sha256"] = None
        if self.labelled is not None and self.labelled.answers_sha256 == sha256:
            update["labelled"] = self.labelled.model_copy(update={"answers_sha256": None})
        return self.model_copy(update=update)
