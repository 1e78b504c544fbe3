"""The campaign of `farm submit my.tflite`, which has no file."""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import yaml

from agent.wire.plan import InputSpec
from orchestrator.errors import UsageError
from orchestrator.manifest.campaign import Campaign, DelegateEntry, ModelEntry, Written, scheme_of
from orchestrator.manifest.delegates import (
    declared_options,
    default_kinds,
    known_kinds,
    read_options,
    settled,
)
from orchestrator.manifest.plans import LEVELS, soft_limit_s
from orchestrator.manifest.problems import suggestion
from orchestrator.manifest.schema import ANY, DEFAULT_REUSE, LARGEST_INT32, MOST_DIMENSIONS, NAME_PATTERN

DEFAULT_LEVEL: Final = "quick"

_UNNAMED = re.compile(r"[^A-Za-z0-9._+-]")
"""What the name of a campaign in a file may not have."""


@dataclass(frozen=True, slots=True)
class InputOptions:
    """The texts of `--input NAME=LOW..HIGH` and `--shape NAME=1,224,224,3`, as they were typed."""

    ranges: Sequence[str] = ()
    shapes: Sequence[str] = ()

    def specs(self) -> dict[str, InputSpec]:
        """Return the inputs by name. Raises `UsageError` with the form that was expected."""
        ranges = dict(_named(text, "--input NAME=0..999") for text in self.ranges)
        shapes = dict(_named(text, "--shape NAME=1,224,224,3") for text in self.shapes)
        found = {}
        for name in dict.fromkeys((*ranges, *shapes)):
            low, high = _range(name, ranges[name]) if name in ranges else (None, None)
            shape = _shape(name, shapes[name]) if name in shapes else None
            found[name] = InputSpec(shape=shape, low=low, high=high)
        return found


@dataclass(frozen=True, slots=True)
class Wanted:
    """The request of a submission without a file.

    `delegates`: kinds, or globs of them; none: every kind that is one by default. `options`: values by name,
    as they were typed, each for the delegates that take it. `name`: of the campaign; None: its first model's.
    """

    level: str = DEFAULT_LEVEL
    delegates: Sequence[str] = ()
    reuse: str = DEFAULT_REUSE
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None


def campaign_for_models(sources: Mapping[str, str], wanted: Wanted | None = None) -> Campaign:
    """Return the campaign of these models, sources by id, on every delegate kind or on those named.

    Raises `UsageError` for an unknown level, delegate kind or option, and for inputs of several models, whose
    names mean different things.
    """
    wanted = wanted or Wanted()
    if wanted.level not in LEVELS:
        raise UsageError(f"unknown level {wanted.level!r}{suggestion(wanted.level, LEVELS)}")
    if wanted.inputs and len(sources) > 1:
        raise UsageError("--input and --shape go with one model; describe several in a campaign file")
    counts = LEVELS[wanted.level]
    models = tuple(
        ModelEntry(one, source, plan=counts, inputs=wanted.inputs, soft_limit_s=soft_limit_s(counts))
        for one, source in sources.items()
    )
    delegates = tuple(_delegates(wanted))
    stated = {name: spec.model_dump() for name, spec in wanted.inputs.items()}
    asked = [(entry.kind, dict(entry.options)) for entry in delegates]
    identity = json.dumps([list(sources.values()), wanted.level, asked, stated, wanted.name], sort_keys=True)
    baseline = "litert" if any(entry.kind == "litert" for entry in delegates) else None
    campaign = Campaign(
        name=wanted.name or models[0].id,
        level=wanted.level,
        labels={},
        models=models,
        delegates=delegates,
        devices=(),
        shared=True,
        exclude=(),
        # The peer, because users who know LiteRT learn little from a ratio to our own `cpu`.
        baseline_delegate=baseline,
        reuse=wanted.reuse,
        manifest_sha256=hashlib.sha256(identity.encode()).hexdigest(),
    )
    return replace(campaign, written=Written(_document(campaign), "the command line"))


def check_name(name: str) -> None:
    """Raise `UsageError` for what is no name of a campaign."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise UsageError(f"--name {name}: a name has up to 100 letters, digits and . _ + -, no sign first")


def _delegates(wanted: Wanted) -> Iterable[DelegateEntry]:
    """One delegate for each kind, with the options that it takes."""
    kinds = list(dict.fromkeys(kind for word in wanted.delegates for kind in _kinds(word))) or default_kinds()
    taken = set[str]()
    for kind in kinds:
        options = read_options(kind, wanted.options)
        taken.update(options)
        own = settled(kind, options)
        if isinstance(own, str):
            raise UsageError(f"{kind}: {own}")
        yield DelegateEntry(kind, kind, own)
    for name in wanted.options:
        if name not in taken:
            known = (known for kind in kinds for known in declared_options(kind))
            raise UsageError(f"no delegate here takes an option {name!r}{suggestion(name, {*known})}")


def _kinds(word: str) -> Sequence[str]:
    found = [kind for kind in known_kinds() if fnmatchcase(kind, word)]
    if not found:
        raise UsageError(f"unknown delegate kind {word!r}{suggestion(word, known_kinds())}")
    return found


def _document(campaign: Campaign) -> str:
    """Return the campaign file that asks for the same."""
    document: dict[str, Any] = {
        "version": 1,
        # A name in a file begins with a letter or a digit.
        "campaign": _UNNAMED.sub("-", f"m-{campaign.name}" if campaign.name[0] in "._+-" else campaign.name),
        "level": campaign.level,
        "defaults": {"reuse": campaign.reuse},
        "models": [
            {
                "id": model.id,
                "source": f"./{Path(model.source).name}"
                if scheme_of(model.source) == "file"
                else model.source,
                "inputs": {name: _stated(spec) for name, spec in model.inputs.items()},
            }
            for model in campaign.models
        ],
        "delegates": {entry.name: {"kind": entry.kind, **entry.options} for entry in campaign.delegates},
        "devices": ANY,
    }
    if campaign.baseline_delegate is not None:
        document["baseline"] = {"delegate": campaign.baseline_delegate}
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _stated(spec: InputSpec) -> dict[str, Any]:
    shape = {} if spec.shape is None else {"shape": list(spec.shape)}
    # `--input` gives both ends or none.
    return shape if spec.low is None else shape | {"random": {"range": [spec.low, spec.high]}}


def _named(text: str, form: str) -> tuple[str, str]:
    # From the right, as names of tensors have equals signs and values have none.
    name, equals, value = text.rpartition("=")
    if not equals or not name or not value:
        raise UsageError(f"{text!r}: expected {form}")
    return name, value


def _range(name: str, text: str) -> tuple[float, float]:
    low, dots, high = text.partition("..")
    try:
        bounds = float(low), float(high)
    except ValueError:
        bounds = math.nan, math.nan
    if not dots or not all(map(math.isfinite, bounds)) or not bounds[0] < bounds[1]:
        raise UsageError(f"--input {name}={text}: expected two numbers LOW..HIGH with LOW below HIGH")
    return bounds


def _shape(name: str, text: str) -> tuple[int, ...]:
    sizes = text.split(",")
    if not all(size.strip().isdecimal() for size in sizes) or len(sizes) > MOST_DIMENSIONS:
        raise UsageError(
            f"--shape {name}={text}: expected up to {MOST_DIMENSIONS} sizes, e.g. {name}=1,224,224,3"
        )
    shape = tuple(map(int, sizes))
    if max(shape) > LARGEST_INT32:
        raise UsageError(f"--shape {name}={text}: a size is at most {LARGEST_INT32}")
    return shape
