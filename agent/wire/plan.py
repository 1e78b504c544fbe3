"""The plan of a cell's measurement: its counts, its labelled data, the data of its inputs."""

import math
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from agent.wire import bounded
from agent.wire.passes import PASSES, AskedPasses

LabelledMetric: TypeAlias = Literal[
    "top1", "top2", "top3", "top4", "top5", "top6", "top7", "top8", "top9", "top10",
    "mAP", "cosine", "equal", "mae", "rmse", "max_abs",
]  # fmt: skip
"""Figures of a model on labelled data: of a classifier, a detector, and of outputs beside the wanted ones."""

LOWER_IS_BETTER: Final = ("mae", "rmse", "max_abs")

Size = Annotated[int, Field(ge=1, le=bounded.MAX_COUNT)]
"""Bytes of a file that has something in it."""

Shape = Annotated[tuple[bounded.Small, ...], Field(max_length=bounded.MAX_RANK)]
"""The sizes of an input's dimensions."""

InputSets = Annotated[int, Field(ge=2, le=bounded.MAX_INPUT_SETS)]
"""The number of different sets of inputs that the invokes of a cell take in turn."""

Channels = Annotated[tuple[float, ...], Field(min_length=1, max_length=3)]
"""A number for all channels of a picture, or one for each."""

INPUT_SETS: Final = 4
"""Input sets of a cell, unless its file says how many: as of `runtime.measure.inputs`, a test compares."""


class _Sparse(bounded.Wire):
    """A part of a plan whose JSON has a field of `left_out` only where it is not the default: what does not
    ask for it stays in the series that it had before there was such a field.
    """

    left_out: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_defaults(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialise(self)
        for name, default in _left_out(type(self)):
            # It may be missing already: callers have ways of leaving defaults out, too.
            if name in fields and getattr(self, name) == default:
                del fields[name]
        return fields


@cache
def _left_out(kind: type["_Sparse"]) -> tuple[tuple[str, Any], ...]:
    """Return the fields that are left out with their defaults; a submission asks for each cell and device."""
    return tuple((name, kind.model_fields[name].default) for name in kind.left_out)


class LabelledData(_Sparse):
    """Samples whose truth is known (docs/models-yaml.md), which a cell is run on once everything is timed.

    `at_least`: the figure below which its whole interval must not lie, or the cell fails; `max_drop`: the
    same of how much it may be worse than the baseline's on the same samples; None: it is only reported.
    `class_offset`, `mean`, `std`: as `runtime.measure.accuracy.data.Data` has them.
    """

    left_out = ("max_drop", "class_offset", "mean", "std")

    sha256: bounded.Sha256
    size_bytes: Size
    metric: LabelledMetric = "top1"
    at_least: float | None = Field(default=None, ge=0, le=1)
    max_drop: float | None = Field(default=None, ge=0)
    class_offset: bounded.Integer = 1
    mean: Channels | None = None
    std: Channels | None = None


class InputData(bounded.Wire):
    """Values of an input that the submitter gave: a `.npy` of the input's type, [samples, *its shape]."""

    sha256: bounded.Sha256
    size_bytes: Size


class OutputSpec(bounded.Wire):
    """The kind of an output, where the model's graph does not say it. `role`: its part in the detections."""

    name: bounded.Key
    kind: Literal["value", "index", "detections"]
    role: Literal["boxes", "classes", "scores", "count"] | None = None


class MeasurePlan(_Sparse, AskedPasses):
    """Counts of one cell, its passes and its labelled data. Defaults: level `quick` (docs/measuring.md).

    A cell is measured in blocks, from `min_blocks` on until its answer is known to `target` (a half width, a
    share such as 0.05), at most `max_blocks`. A block is one fresh process of each arm, which take turns in
    `rounds` by slices of at least `slice_runs` invokes and `slice_seconds`. Unless `rounds_fixed`, later
    blocks have as many rounds as the variances of the first ones make worthwhile.
    `tunings`: over how many of them the processes are spread, for a delegate that chooses by timing.
    `halving`: only the arm with the least of this figure is sought, and those behind leave early.
    `outputs`: the kinds of outputs. `input_sets`: how many different sets of inputs the invokes take in turn.
    """

    left_out = (
        "tunings", "rounds_fixed", "halving", "labelled", "outputs", "input_sets",
        *(one.asked for one in PASSES),
    )  # fmt: skip

    level: Literal["quick", "standard", "publish"] = "quick"
    min_blocks: int = Field(default=3, ge=1, le=bounded.MAX_BLOCKS)
    max_blocks: int = Field(default=6, ge=1, le=bounded.MAX_BLOCKS)
    target: float = Field(default=0.05, gt=0, le=1)
    tunings: int = Field(default=1, ge=1, le=bounded.MAX_BLOCKS)
    warmup_runs: bounded.Count = 5
    warmup_seconds: float = Field(default=0.2, ge=0)
    rounds: int = Field(default=7, ge=1, le=bounded.MAX_ROUNDS)
    rounds_fixed: bool = False
    halving: Literal["p50", "p99"] | None = None
    slice_runs: int = Field(default=5, ge=1, le=bounded.MAX_SLICE_RUNS)
    slice_seconds: float = Field(default=0.1, ge=0, le=bounded.MAX_SLICE_SECONDS)
    labelled: LabelledData | None = None
    outputs: tuple[OutputSpec, ...] = Field(default=(), max_length=bounded.MAX_OUTPUTS)
    input_sets: InputSets = INPUT_SETS

    @property
    def most_rounds(self) -> int:
        """Rounds of a block, at most, without those that are repeated."""
        return self.rounds if self.rounds_fixed else max(self.rounds, bounded.MOST_DERIVED_ROUNDS)

    @property
    def most_repeated(self) -> int:
        """Blocks that are measured once more because others disturbed them, at most."""
        return self.max_blocks // 3

    def most_slice_runs(self, rounds: int) -> int:
        """Return the most timed runs of a slice in a block of so many rounds.

        A block of more rounds than planned has no more runs of a fast model: its samples are bounded.
        """
        most = math.ceil(self.slice_seconds / bounded.SHORTEST_RUN_S)
        return max(self.slice_runs, most * self.rounds // max(rounds, self.rounds))

    @property
    def passes_s(self) -> tuple[float, ...]:
        """Seconds of each pass that a process makes once everything is timed."""
        asked = ((one.seconds, one.of(self)) for one in PASSES)
        return tuple(seconds(what) for seconds, what in asked if seconds and what is not None)


class InputSpec(_Sparse):
    """Data of one input: `shape` resizes it; `low`, `high`, `seed` and `distribution` define the random
    values, in place of which `data` holds the submitter's.
    """

    left_out = ("distribution", "data")

    shape: Shape | None = None
    seed: bounded.Integer = 0
    low: float | None = None
    high: float | None = None
    distribution: Literal["uniform", "normal"] = "uniform"
    data: InputData | None = None
