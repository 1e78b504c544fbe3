"""Keys of a `models.yaml`: a class for each of its mappings, with the types and bounds of the values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, get_args

import yaml
from pydantic import GetJsonSchemaHandler, field_validator, model_validator
from pydantic_core import CoreSchema

from agent.wire.bounded import (
    MAX_BLOCKS,
    MAX_IN_FLIGHT,
    MAX_INPUT_SETS,
    MAX_INPUTS,
    MAX_OUTPUTS,
    MAX_ROUNDS,
    MAX_SLICE_RUNS,
    MAX_SLICE_SECONDS,
    MAX_STEPS,
)
from agent.wire.plan import LOWER_IS_BETTER, LabelledMetric
from orchestrator.manifest.campaign import HIGHEST_PRIORITY, LEAST_TARGET
from orchestrator.manifest.delegates import DelegateForm, WrittenDelegate
from orchestrator.manifest.keys import LATER, Entries, Items, Keys, OneOrMany, key, required
from orchestrator.manifest.plans import LEVELS
from orchestrator.manifest.problems import suggestion
from orchestrator.manifest.values import (
    Choice,
    Duration,
    JsonSchema,
    Number,
    Share,
    Text,
    ValueType,
    Whole,
    mistake,
)

MAX_MODELS: Final = 2000
"""The most models of one file. Chosen so that with a few delegates on a few devices the cells stay below
`matrix.MAX_CELLS`; a longer file would be refused there, after its models were fetched."""

MAX_RULES: Final = 1000
"""The most device selectors, devices of one class, and exclusion rules. Chosen; each rule is tried on each
cell."""

_MOST_WARMUP_RUNS: Final = 1_000_000
"""The largest count of warm-up runs. Chosen; each one's time is kept with the result."""

_MOST_SECONDS: Final = 86_400
"""The longest warm-up or sustained pass of one process, in seconds: a day. Chosen; nothing else can use the
device meanwhile."""

_SHORTEST_SUSTAINED_MIN: Final = 0.02
"""The shortest sustained pass in minutes, about a second. Chosen for trials; heat needs minutes to show."""

_LEAST_THROUGHPUT_S: Final = 0.1
"""The shortest throughput pass in seconds. Chosen for trials; a shorter one would count too few runs."""

_MOST_THROUGHPUT_S: Final = 600
"""The longest throughput pass in seconds. Chosen: what minutes of work do to a machine, `sustained` shows."""

LARGEST_INT32: Final = 2**31 - 1
"""The largest size of a dimension: a shape is a vector of int32 in a `.tflite` file."""

MOST_DIMENSIONS: Final = 8
"""The highest rank of an input. Chosen above that of any model that we know; which ranks an operator takes is
judged where the model is opened."""

_LARGEST_SEED: Final = 2**63 - 1
"""The largest seed: the largest signed integer of 64 bits. Chosen; numpy would take larger ones."""

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}"

LONGEST_LABEL: Final = 200
"""The most characters of a label's value. Chosen: pages and tables show it whole."""

DEFAULT_REUSE = "same-fingerprint"

_AND_SUSPECT = "+suspect"
"""The end of a rule of earlier releases: it is told apart, to say what became of it."""


class _Version(ValueType):
    """The version of the format: 1."""

    def read(self, value: Any) -> int:
        """See `ValueType.read`."""
        if not isinstance(value, yaml.ScalarNode) or (value.tag, value.value) != (
            "tag:yaml.org,2002:int",
            "1",
        ):
            raise mistake("this farm reads version 1; write `version: 1`")
        return 1

    def schema(self) -> JsonSchema:
        """See `ValueType.schema`."""
        return {"const": 1}


class _Reuse(ValueType):
    """`same-fingerprint`, `never`, or `max-age:7d` as `max-age:SECONDS`."""

    def read(self, value: Any) -> str:
        """See `ValueType.read`."""
        word = Text().read(value)
        if word in ("never", "same-fingerprint"):
            return word
        if word.endswith(_AND_SUSPECT):
            raise mistake(f"{word!r}: leave out {_AND_SUSPECT!r}; every result that is not void is reused")
        age = word.removeprefix("max-age:")
        if age != word:
            return f"max-age:{Duration().read(yaml.ScalarNode(value.tag, age)):.0f}"
        known = ("same-fingerprint", "never", "max-age:7d")
        raise mistake(f"unknown reuse rule {word!r}{suggestion(word, known)}")

    def schema(self) -> JsonSchema:
        """See `ValueType.schema`."""
        ages = r"max-age:\s*[0-9.]+\s*(?:ms|s|m|h|d)?"
        return {"type": "string", "pattern": f"^(?:never|same-fingerprint|{ages})$"}


_SHA256_RULE = "expected 64 lower-case hex digits"
_Name: TypeAlias = Annotated[
    str, Text(NAME_PATTERN, "expected letters, digits and . _ + - (at most 100)", numeric=True)
]
_Labels: TypeAlias = Annotated[dict[str, Annotated[str, Text(limit=LONGEST_LABEL, numeric=True)]], Entries()]
_Glob: TypeAlias = Annotated[str, Text(limit=200, numeric=True)]
_Https: TypeAlias = Annotated[
    str, Text(r"https://[^\s@]{1,1900}", "expected https://HOST/PATH without a user name")
]
_Sha256: TypeAlias = Annotated[str, Text(r"[0-9a-f]{64}", _SHA256_RULE, numeric=True)]
_Source: TypeAlias = Annotated[str, Text()]
_BlockCount: Final = Whole(1, MAX_BLOCKS)
_Seconds: TypeAlias = Annotated[float, Duration()]


class BlockBounds(Keys):
    """`{min: 3, max: 6}`, or `6` for exactly so many."""

    min: Annotated[int, _BlockCount] | None = key("Blocks of each cell, at least.")
    max: Annotated[int, _BlockCount] | None = key(
        "Blocks of each cell, at most, where its target is not reached before."
    )

    @model_validator(mode="before")
    @classmethod
    def _of_one_number(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            _BlockCount.read(value)
            return {"min": value, "max": value}
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        bounds = handler.resolve_ref_schema(handler(core))
        del bounds["description"]
        return {"anyOf": [_BlockCount.schema(), bounds]}


class Slice(Keys):
    """The part of a round that one delegate has."""

    min_runs: Annotated[int, Whole(1, MAX_SLICE_RUNS)] | None = key("Timed runs of a slice, at least.")
    seconds: Annotated[float, Number(0, MAX_SLICE_SECONDS)] | None = key(
        "Seconds of timed runs of a slice, about."
    )


class Warmup(Keys):
    """Runs of a process before those that are timed."""

    runs: Annotated[int, Whole(0, _MOST_WARMUP_RUNS)] | None = key(
        "Runs before the first that is timed, at least."
    )
    min_seconds: Annotated[float, Number(0, _MOST_SECONDS)] | None = key("Seconds of warm-up runs, at least.")


class Sustained(Keys):
    """A pass without a pause."""

    minutes: Annotated[float, Number(_SHORTEST_SUSTAINED_MIN, _MOST_SECONDS / 60)] = required(
        "How long one further process invokes the model without a pause."
    )


class Throughput(Keys):
    """A pass with several runs in flight."""

    in_flight: Annotated[int, Whole(1, MAX_IN_FLIGHT)] = required(
        "Runs that are started and not yet ended at any time; 1: one after another."
    )
    seconds: Annotated[float, Number(_LEAST_THROUGHPUT_S, _MOST_THROUGHPUT_S)] = required(
        "How long one further process keeps so many in flight."
    )


class Measure(Keys):
    """Counts that replace those of the level, and passes beside it."""

    refused: ClassVar[Mapping[str, str]] = {
        "timing": LATER,
        "processes": "was replaced; write `blocks: 3`, or `blocks: {min: 3, max: 6}`: each has one process",
        "timed": "was replaced; write `rounds: 7` and `slice: {min_runs: 5, seconds: 0.1}`: delegates take "
        "turns by slices",
        "target_ci": "was replaced; write `target: 5%`",
        "batch": "does not belong here; a batch of 8 is the shape of an input, "
        "`inputs: {NAME: {shape: [8, ...]}}`; samples per second are 8 times `throughput.per_second`",
    }

    blocks: BlockBounds | None = key(
        "Fresh processes of each cell: a count, or the least and the most of them."
    )
    target: Annotated[float, Share(LEAST_TARGET, 1)] | None = key(
        "Half width of the 95 % interval, as a share, at which a cell has blocks enough."
    )
    rounds: Annotated[int, Whole(1, MAX_ROUNDS)] | None = key(
        "Rounds of a block, in each of which every delegate is timed for a slice."
    )
    slice: Slice | None = key("How long a delegate is timed before the next one takes its turn.")
    warmup: Warmup | None = key("How long a process runs the model before it is timed.")
    steps: Annotated[int, Whole(2, MAX_STEPS)] | None = key(
        "Steps of a sequence, from a fresh state on, that one further process times of a stateful model."
    )
    tunings: Annotated[int, _BlockCount] | None = key(
        "Tunings over which the blocks are spread, where the delegate chooses by timing."
    )
    sustained: Sustained | None = key(
        "A pass that shows whether the model becomes slower as the machine warms up."
    )
    throughput: Throughput | None = key(
        "A pass that counts the runs finished in a second while several are in flight."
    )
    profile: (
        Annotated[Literal["none", "ops", "kernels"], Choice(("none", "ops", "kernels"), "profile")] | None
    ) = key("A pass that times each operator by itself, or each kernel too.")


class Limits(Keys):
    """Limits of time."""

    job: _Seconds | None = key("The longest that one attempt may take: 500ms, 30s, 15m, 12h, or seconds.")
    queue: _Seconds | None = key(
        "The longest that a cell waits for a device; then it fails. Left out: no limit."
    )


MOST_RETRIES: Final = 2
"""The most retries of a cell: `policy.lifecycle.MAX_ATTEMPTS` without the first attempt, as a test checks."""

RETRIED_KINDS: Final = ("agent_lost", "artifact", "crash", "device_lost", "interrupted", "runner_killed")
"""Reason codes after which the farm tries again, as a test compares with `policy.lifecycle.TRIED_AGAIN`."""


class Retry(Keys):
    """Failures that are tried again."""

    times: Annotated[int, Whole(0, MOST_RETRIES)] | None = key(
        "How often a failed attempt is followed by another one; left out: twice."
    )
    kinds: (
        Annotated[
            tuple[Annotated[str, Choice(RETRIED_KINDS, "kind of failure")], ...],
            Items(1, len(RETRIED_KINDS)),
        ]
        | None
    ) = key("The reason codes after which it is; left out: all of these.")


class Random(Keys):
    """Pseudo-random values of an input."""

    seed: Annotated[int, Whole(0, _LARGEST_SEED)] = key(
        "The seed of the generator; the same seed gives the same values everywhere.", 0
    )
    range: Annotated[tuple[Annotated[float, Number()], ...], Items(2, 2)] | None = key(
        "The lowest and the highest value, [low, high]."
    )
    distribution: Annotated[Literal["uniform", "normal"], Choice(("uniform", "normal"), "distribution")] = (
        key(
            "uniform over the range, or normal: around its middle, with a third of it as standard deviation.",
            "uniform",
        )
    )

    @field_validator("range")
    @classmethod
    def _require_order(cls, bounds: tuple[float, ...]) -> tuple[float, ...]:
        if bounds[0] >= bounds[1]:
            raise mistake(f"expected [low, high] with low < high, found [{bounds[0]:g}, {bounds[1]:g}]")
        return bounds


class Input(Keys):
    """Shape and values of one input."""

    shape: (
        Annotated[tuple[Annotated[int, Whole(0, LARGEST_INT32)], ...], Items(0, MOST_DIMENSIONS)] | None
    ) = key("The sizes of the input's dimensions, where the model leaves some open.")
    random: Random | None = key("Pseudo-random values for this input.")
    data: Annotated[tuple[_Source, ...], OneOrMany(1, MAX_INPUT_SETS)] | None = key(
        "Your own values: .npy, .npz, raw bytes (.bin, .raw) or pictures; paths or https: addresses."
    )
    sha256: _Sha256 | None = key("The SHA-256 of the file of `data`, which pins it; with a single file.")

    @model_validator(mode="after")
    def _has_one_kind_of_values(self) -> Input:
        if self.data is not None and self.random is not None:
            raise mistake("`data` and `random` are two ways to fill an input; write one of them")
        if self.sha256 is not None and len(self.data or ()) != 1:
            raise mistake("`sha256` pins the only file of `data`")
        return self


OutputKind: TypeAlias = Literal["value", "index", "detections"]
DetectionRole: TypeAlias = Literal["boxes", "classes", "scores", "count"]


class Output(Keys):
    """The kind of an output."""

    kind: Annotated[OutputKind, Choice(get_args(OutputKind), "kind of output")] = required(
        "value: judged by its error. index: class ids and the like. detections: see `role`."
    )
    role: Annotated[DetectionRole, Choice(get_args(DetectionRole), "role")] | None = key(
        "The part of the detections that this output holds: boxes, classes, scores or count."
    )

    @model_validator(mode="after")
    def _has_a_role(self) -> Output:
        if (self.kind == "detections") != (self.role is not None):
            raise mistake("`role` belongs to `kind: detections`, which needs it")
        return self


class Accuracy(Keys):
    """Samples whose truth is known, on which a model is judged."""

    refused: ClassVar[Mapping[str, str]] = {"samples": LATER}

    dataset: _Source = required(
        "Labelled samples, by path or https: address: an .npz file of arrays, or a .zip or .tar of pictures."
    )
    sha256: _Sha256 | None = key("The SHA-256 of the file, which pins it.")
    metric: Annotated[LabelledMetric, Choice(get_args(LabelledMetric), "metric")] = key(
        "topK: the share of samples whose class is among the first K answers. mAP: COCO's mean average "
        "precision. The others compare outputs with the wanted ones.",
        "top1",
    )
    at_least: Annotated[float, Number(0, 1)] | None = key(
        "The figure, from 0 to 1, below which the cell fails; of a metric of which more is better."
    )
    max_drop: Annotated[float, Number(0)] | None = key(
        "How much worse than the baseline's the figure may be on the same samples, by the whole interval."
    )
    class_offset: Annotated[int, Whole(-LARGEST_INT32, LARGEST_INT32)] = key(
        "What is added to a detector's class to have the category's id.", 1
    )
    mean: Annotated[tuple[Annotated[float, Number()], ...], Items(1, 3)] | None = key(
        "Mean of the pixels on the scale 0 to 255, for all channels or for each."
    )
    std: Annotated[tuple[Annotated[float, Number()], ...], Items(1, 3)] | None = key(
        "Deviation of the pixels on the scale 0 to 255, for all channels or for each."
    )

    @model_validator(mode="after")
    def _limit_has_a_sense(self) -> Accuracy:
        if self.at_least is not None and self.metric in LOWER_IS_BETTER:
            raise mistake(f"`at_least` is no limit of {self.metric}, of which less is better; use max_drop")
        return self


class Defaults(Keys):
    """Settings of every model that has none of its own."""

    refused: ClassVar[Mapping[str, str]] = {"accuracy": LATER, "gate": LATER}

    measure: Measure | None = key("How long each model is measured; overrides what `level` says.")
    reuse: Annotated[str, _Reuse()] = key(
        "When an earlier result counts (no void one): same-fingerprint, max-age:7d, never.", DEFAULT_REUSE
    )
    limits: Limits | None = key("Limits of every attempt and cell.")
    retry: Retry | None = key("Which failures are tried again, and how often.")


class Model(Keys):
    """One model: its source, and what is different for it."""

    refused: ClassVar[Mapping[str, str]] = {"task": LATER, "gate": LATER}

    id: Annotated[str, Text(limit=120, numeric=True)] = required(
        "The model's name in tables, pages and rules."
    )
    source: _Source = required(
        "Where the file comes from: a path, zoo:NAME, https:, pypi:NAME==VERSION!MEMBER or npm:."
    )
    sha256: _Sha256 | None = key("The SHA-256 of the .tflite file, which pins it.")
    platform: (
        Annotated[str, Text(r"[a-z0-9_]+", "expected a platform tag, e.g. manylinux_2_28_x86_64")] | None
    ) = key("Which wheel of a pypi: source, by its platform tag.")
    python: (
        Annotated[str, Text(r"3\.\d{1,2}", "expected a Python version such as 3.11", numeric=True)] | None
    ) = key("Which wheel of a pypi: source, by its Python version.")
    signature: Annotated[str, Text(limit=200, numeric=True)] | None = key(
        "The signature whose graph is measured, by its key; left out: the first graph. Names of inputs and "
        "outputs are the signature's."
    )
    measure: Measure | None = key("How long this model is measured; overrides `defaults`.")
    inputs: Annotated[dict[str, Input], Entries(MAX_INPUTS)] = key(
        "Shapes and values of inputs, by their names.", {}
    )
    input_sets: Annotated[int, Whole(2, MAX_INPUT_SETS)] | None = key(
        "Different sets of inputs, which invokes take in turn; left out: 4, or as many as `data` has samples."
    )
    outputs: Annotated[dict[str, Output], Entries(MAX_OUTPUTS)] = key(
        "What outputs are, by their names, where the model's graph does not say it.", {}
    )
    limits: Limits | None = key("Limits of this model's attempts and cells; override `defaults`.")
    reuse: Annotated[str, _Reuse()] | None = key(
        "When an earlier result of this model counts; overrides `defaults`."
    )
    retry: Retry | None = key("Which failures of this model are tried again; overrides `defaults`.")
    accuracy: Accuracy | None = key("Labelled samples that the model classifies once it is timed.")


class Device(Keys):
    """A selector of devices; every given field must match."""

    kind: Annotated[str, Choice(("cpu", "gpu"), "device kind")] | None = key("Processors or GPUs.")
    vendor: _Glob | None = key("A glob over the vendor's name.")
    name: _Glob | None = key("A glob over the device's name.")
    labels: _Labels = key("Labels that the device must have.", {})
    count: Annotated[int, Whole(1, MAX_RULES)] | None = key(
        "How many devices of this class, whichever are free first; left out: all of them."
    )


class Exclude(Keys):
    """Cells that are not measured: those that match every glob."""

    model: _Glob | None = key("A glob over model ids.")
    delegate: _Glob | None = key("A glob over delegate names.")
    device: _Glob | None = key("A glob over device names.")


class Against(Keys):
    """An earlier campaign."""

    campaign: _Glob = required("Its id, its name, NAME~1, or latest: the one of this name before.")


class Baseline(Keys):
    """The baseline of the results."""

    delegate: _Name | None = key("The delegate over which speed-ups are measured, by interleaved blocks.")
    against: Against | None = key(
        "An earlier campaign that the cells are compared with at the end, unpaired."
    )


class NotifyForm(Keys):
    """Who is told of the end."""

    url: _Https = required("The https: address that gets a signed message when the campaign has ended.")
    link: _Https | None = key(
        "An https: address that the message names, such as that of the published pages."
    )


_MISPLACED = "does not belong here; it belongs under 'defaults'"


class Manifest(Keys):
    """A whole file."""

    refused: ClassVar[Mapping[str, str]] = dict.fromkeys(("measure", "reuse", "limits", "retry"), _MISPLACED)

    version: Annotated[int, _Version()] = required("The version of this format.")
    campaign: _Name = required("The campaign's name: letters, digits and . _ + -")
    level: Annotated[str, Choice(LEVELS, "level")] = key(
        "How thoroughly is measured: quick, standard or publish.", "quick"
    )
    priority: Annotated[int, Whole(-HIGHEST_PRIORITY, HIGHEST_PRIORITY)] = key(
        "Which campaign goes first; higher is sooner.", 0
    )
    labels: _Labels = key("Free labels, shown with the results.", {})
    defaults: Defaults | None = key("What holds for every model that says nothing else.")
    models: Annotated[tuple[Model, ...], Items(1, MAX_MODELS)] = required(
        "The models, in the order of the tables."
    )
    delegates: Annotated[dict[_Name, Annotated[DelegateForm, WrittenDelegate()]], Entries()] = required(
        "Delegates by the names that tables show; a list of values makes a delegate of each."
    )
    devices: Annotated[tuple[Device, ...], Items(1, MAX_RULES)] = key(
        "Which devices; every given field must match. Left out: every device.", ()
    )
    exclude: Annotated[tuple[Exclude, ...], Items(0, MAX_RULES)] = key(
        "Combinations that are not measured.", ()
    )
    baseline: Baseline | None = key("What the others are compared with.")
    budgets: Annotated[tuple[Annotated[str, Text(limit=200)], ...], Items(0, MAX_RULES)] = key(
        "Bounds such as 'p50<=5ms', which `farm submit` judges.", ()
    )
    time_budget: _Seconds | None = key(
        "How long to measure in all: what is left of it goes to the vaguest cells."
    )
    notify: NotifyForm | None = key("Whom `farm submit` tells that the campaign has ended.")


class Readable(Manifest):
    """The rest of a file whose parts with mistakes were taken out, whatever those were."""

    version: Annotated[int, _Version()] = 1
    campaign: _Name = ""
    models: Annotated[tuple[Model, ...], Items(0, MAX_MODELS)] = ()
    delegates: Annotated[dict[_Name, Annotated[DelegateForm, WrittenDelegate()]], Entries()] = key("", {})
