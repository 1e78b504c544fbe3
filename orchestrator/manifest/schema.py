"""The schema of a `models.yaml`: its keys and the form of their values."""

from __future__ import annotations

from typing import Final

import yaml

from agent.wire.bounded import MAX_INPUTS
from orchestrator.manifest.campaign import HIGHEST_PRIORITY
from orchestrator.manifest.delegates import delegate
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
_label = text(limit=200, numeric=True)
_glob = text(limit=200, numeric=True)
_count = number(whole=True, minimum=1, maximum=_MOST_RUNS)
_seconds = number(minimum=0, maximum=_MOST_SECONDS)

MEASURE = Keys(
    {
        "warmup": Keys(
            {"runs": number(whole=True, minimum=0, maximum=_MOST_WARMUP_RUNS), "min_seconds": _seconds}
        ),
        "timed": Keys(
            {"min_runs": _count, "max_runs": _count, "min_seconds": _seconds, "max_seconds": _seconds}
        ),
        "processes": number(whole=True, minimum=1, maximum=_MOST_PROCESSES),
    },
    later=("target_ci", "timing", "batch", "profile"),
)

LIMITS = Keys({"job": duration}, later=("queue",))


def _shape(node: yaml.Node, problems: Problems) -> tuple[int, ...] | None:
    sizes = listing(number(whole=True, minimum=0, maximum=LARGEST_INT32), maximum=MOST_DIMENSIONS)(
        node, problems
    )
    return None if sizes is None else tuple(int(size) for size in sizes)


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
        "random": Keys({"seed": number(whole=True, minimum=0, maximum=_LARGEST_SEED), "range": _range}),
    },
    later=("data",),
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
)

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
        "accuracy": ACCURACY,
    },
    required=("id", "source"),
    later=("task", "signature", "reuse", "retry", "gate"),
)


DEVICE = Keys(
    {
        "kind": choice(("cpu", "gpu"), "device kind"),
        "vendor": _glob,
        "name": _glob,
        "labels": table(_label),
        "count": number(whole=True, minimum=1, maximum=MAX_RULES),
    },
)

EXCLUDE = Keys({"model": placed(_glob), "delegate": placed(_glob), "device": placed(_glob)})


def reuse(node: yaml.Node, problems: Problems) -> str | None:
    """`same-fingerprint`, `never`, or `max-age:7d` as `max-age:SECONDS`."""
    word = text()(node, problems)
    if word is None or word in ("same-fingerprint", "never"):
        return word
    age = word.removeprefix("max-age:")
    if age != word:
        seconds = duration(yaml.ScalarNode(node.tag, age, node.start_mark, node.end_mark), problems)
        return None if seconds is None else f"max-age:{seconds:.0f}"
    known = ("same-fingerprint", "never", "max-age:7d")
    problems.add(node, f"unknown reuse rule {word!r}{suggestion(word, known)}")
    return None


def _version(node: yaml.Node, problems: Problems) -> int | None:
    if node.tag != "tag:yaml.org,2002:int" or node.value != "1":
        problems.add(node, "this farm reads version 1; write `version: 1`")
        return None
    return 1


_MISPLACED = "it belongs under 'defaults'"
ROOT = Keys(
    {
        "version": _version,
        "campaign": _name,
        "level": choice(LEVELS, "level"),
        "priority": number(whole=True, minimum=-HIGHEST_PRIORITY, maximum=HIGHEST_PRIORITY),
        "labels": table(_label),
        "defaults": Keys(
            {"measure": placed(MEASURE), "reuse": reuse, "limits": LIMITS},
            later=("accuracy", "gate", "retry"),
        ),
        "models": listing(placed(MODEL), minimum=1, maximum=MAX_MODELS),
        "delegates": table(placed(delegate), _name),
        "devices": listing(DEVICE, minimum=1, maximum=MAX_RULES),
        "exclude": listing(placed(EXCLUDE), maximum=MAX_RULES),
        "baseline": Keys({"delegate": placed(_name)}, required=("delegate",), later=("against",)),
        "budgets": listing(placed(text(limit=200)), maximum=MAX_RULES),
    },
    required=("version", "campaign", "models", "delegates"),
    later=("notify",),
    elsewhere={"measure": _MISPLACED, "reuse": _MISPLACED, "limits": _MISPLACED},
)
