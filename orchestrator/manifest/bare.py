"""The campaign of `farm submit --model my.tflite`, which has no file."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from agent.wire.plan import InputSpec
from orchestrator.errors import UsageError
from orchestrator.manifest.campaign import Campaign, DelegateEntry, ModelEntry, Written
from orchestrator.manifest.delegates import default_kinds, known_kinds
from orchestrator.manifest.plans import LEVELS, soft_limit_s
from orchestrator.manifest.problems import suggestion
from orchestrator.manifest.schema import DEFAULT_REUSE, LARGEST_INT32, MOST_DIMENSIONS

_UNNAMED = re.compile(r"[^A-Za-z0-9._+-]")
"""What the name of a campaign in a file may not have."""

_LONGEST_ID = 100
"""Characters of a file's stem that become the model's id, which messages and pages show."""


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
    """The request of a submission without a file: no delegates means every installed kind that is one by
    default.
    """

    level: str = "quick"
    delegates: Sequence[str] = ()
    reuse: str = DEFAULT_REUSE
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)


def campaign_for_models(paths: Sequence[Path], wanted: Wanted | None = None) -> Campaign:
    """Return the campaign of these files, named after the first, on every delegate kind or on those named.

    Raises `UsageError` for an unknown level or delegate kind, for a file that is named twice, and for inputs
    of several models, whose names mean different things.
    """
    wanted = wanted or Wanted()
    if wanted.level not in LEVELS:
        raise UsageError(f"unknown level {wanted.level!r}{suggestion(wanted.level, LEVELS)}")
    kinds = tuple(dict.fromkeys(wanted.delegates)) or default_kinds()
    for kind in kinds:
        if kind not in known_kinds():
            raise UsageError(f"unknown delegate kind {kind!r}{suggestion(kind, known_kinds())}")
    if wanted.inputs and len(paths) > 1:
        raise UsageError(
            "--input and --shape go with one --model; describe several models in a campaign file"
        )
    models = tuple(_models(paths, wanted))
    stated = {name: spec.model_dump() for name, spec in wanted.inputs.items()}
    places = [str(path.absolute()) for path in paths]
    identity = json.dumps([places, wanted.level, list(kinds), stated], sort_keys=True)
    baseline = "litert" if "litert" in kinds else None
    campaign = Campaign(
        name=models[0].id,
        level=wanted.level,
        labels={},
        models=models,
        delegates=tuple(DelegateEntry(kind, kind) for kind in kinds),
        devices=(),
        exclude=(),
        # The peer, because users who know LiteRT learn little from a ratio to our own `cpu`.
        baseline_delegate=baseline,
        reuse=wanted.reuse,
        manifest_sha256=hashlib.sha256(identity.encode()).hexdigest(),
    )
    return replace(campaign, written=Written(_document(campaign), f"--model {paths[0]}"))


def _document(campaign: Campaign) -> str:
    """Return the campaign file that asks for the same."""
    document: dict[str, Any] = {
        "version": 1,
        "campaign": _UNNAMED.sub("-", f"m-{campaign.name}" if campaign.name[0] in "._+-" else campaign.name),
        "level": campaign.level,
        "defaults": {"reuse": campaign.reuse},
        "models": [
            {
                "id": model.id,
                "source": f"./{Path(model.source).name}",
                "inputs": {name: _stated(spec) for name, spec in model.inputs.items()},
            }
            for model in campaign.models
        ],
        "delegates": {entry.name: {"kind": entry.kind} for entry in campaign.delegates},
    }
    if campaign.baseline_delegate is not None:
        document["baseline"] = {"delegate": campaign.baseline_delegate}
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _stated(spec: InputSpec) -> dict[str, Any]:
    """Return an input as a campaign file has it."""
    shape = {} if spec.shape is None else {"shape": list(spec.shape)}
    return shape if spec.low is None else shape | {"random": {"range": [spec.low, spec.high]}}


def _models(paths: Sequence[Path], wanted: Wanted) -> Iterable[ModelEntry]:
    """One entry for each file. Files of one stem get the numbers 2, 3, … behind it."""
    counts = LEVELS[wanted.level]
    seen: dict[str, Path] = {}
    for path in paths:
        if path.absolute() in seen.values():
            raise UsageError(f"--model {path} is given twice")
        stem = "".join(c if c.isprintable() else "?" for c in path.stem)[:_LONGEST_ID] or "model"
        number = 1
        name = stem
        while name in seen:
            number += 1
            name = f"{stem}-{number}"
        seen[name] = path.absolute()
        yield ModelEntry(
            name,
            str(path.absolute()),
            plan=counts,
            inputs=wanted.inputs,
            soft_limit_s=soft_limit_s(counts),
        )


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
