"""Builds a `Campaign` from a `models.yaml`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from agent.wire.plan import InputSpec, MeasurePlan
from orchestrator.errors import UsageError
from orchestrator.manifest.budget import RATIO, read_budget
from orchestrator.manifest.campaign import (
    Campaign,
    DataEntry,
    DelegateEntry,
    DeviceSelector,
    ExcludeRule,
    ModelEntry,
    Notify,
    RetryEntry,
    Written,
)
from orchestrator.manifest.delegates import expand
from orchestrator.manifest.document import compose, read_bytes
from orchestrator.manifest.plans import LEVELS, plan, soft_limit_s
from orchestrator.manifest.problems import Problem, Problems, suggestion
from orchestrator.manifest.readers import Placed
from orchestrator.manifest.schema import ROOT
from orchestrator.manifest.sound import is_whole, sound

DEFAULT_REUSE = "same-fingerprint"


CheckSources: TypeAlias = Callable[[Sequence[ModelEntry]], Iterable[Problem]]
"""Returns the mistakes in the sources of models, which another room knows how to check."""


def load_manifest(path: Path, level: str | None = None, sources: CheckSources | None = None) -> Campaign:
    """Read and check a campaign file; `level`: in place of the file's.

    Raises `ManifestError` (a `UsageError`) with every mistake: of form, between places of the file, and what
    `sources` finds. Raises `UsageError` for an unknown level.
    """
    return parse_manifest(read_bytes(path), str(path), level, sources)


def parse_manifest(
    content: bytes, file: str, level: str | None = None, sources: CheckSources | None = None
) -> Campaign:
    """Check the content of a campaign file, which messages call `file`. Raises as `load_manifest`."""
    if level is not None and level not in LEVELS:
        raise UsageError(f"unknown level {level!r}{suggestion(level, LEVELS)}")
    problems = Problems(file)
    root = compose(content, file)
    values = ROOT(root, problems) or {}
    if problems:
        values = sound(values)
    # Another level is another submission of the file and must not be taken for it.
    changed = level is not None and level != values.get("level", "quick")
    identity = content + (f"\nlevel: {level}".encode() if changed else b"")
    values |= {"level": level} if changed else {}
    campaign = _Builder(values, root, problems).campaign(hashlib.sha256(identity).hexdigest())
    # A file without another mistake is checked by whoever resolves its sources: each file is read once.
    if problems and sources is not None:
        problems.extend(sources(campaign.models))
    problems.raise_any()
    return replace(campaign, written=Written(content.decode(), file, level=level))


class _Builder:
    """Joins the checked values, and notes mistakes that arise between two places of the file."""

    def __init__(self, values: dict[str, Any], root: yaml.Node, problems: Problems) -> None:
        self._values = values
        self._root = root
        self._problems = problems
        self._level: str = values.get("level", "quick")
        self._defaults: dict[str, Any] = values.get("defaults", {})

    def campaign(self, manifest_sha256: str) -> Campaign:
        models = tuple(self._models())
        delegates = tuple(self._delegates())
        named = self._names("delegates", (d.name for d in delegates))
        return Campaign(
            name=self._values["campaign"],
            level=self._level,
            labels=self._values.get("labels", {}),
            models=models,
            delegates=delegates,
            devices=tuple(DeviceSelector(**selector) for selector in self._values.get("devices", ())),
            exclude=tuple(self._exclude(self._names("models", (m.id for m in models)), named)),
            baseline_delegate=self._baseline(named),
            reuse=self._defaults.get("reuse", DEFAULT_REUSE),
            manifest_sha256=manifest_sha256,
            priority=self._values.get("priority", 0),
            budgets=tuple(self._budgets()),
            time_budget_s=self._values.get("time_budget"),
            against=self._against(),
            notify=self._notify(),
        )

    def _names(self, key: str, found: Iterable[str]) -> list[str] | None:
        """Return the names of the models or delegates; None if some could not be read: a name that is not
        among the others may be theirs.
        """
        return list(found) if is_whole(self._values, self._root, key) else None

    def _models(self) -> Iterable[ModelEntry]:
        seen: dict[str, int] = {}
        for placed in self._values["models"]:
            model = placed.value
            name: Placed = model["id"]
            if name.value in seen:
                self._problems.add(
                    name.node, f"id {name.value!r} is used twice; first on line {seen[name.value]}"
                )
            seen.setdefault(name.value, name.node.start_mark.line + 1)
            self._check_source(model)
            limits = self._defaults.get("limits", {}) | model.get("limits", {})
            counts = self._plan(model.get("measure"))
            start = model["source"].node.start_mark
            yield ModelEntry(
                id=name.value,
                source=model["source"].value,
                sha256=model.get("sha256"),
                platform=_value(model.get("platform")),
                python=_value(model.get("python")),
                plan=counts,
                inputs={key: _input(value) for key, value in model.get("inputs", {}).items()},
                soft_limit_s=limits.get("job", soft_limit_s(counts)),
                queue_limit_s=limits.get("queue"),
                reuse=model.get("reuse"),
                retry=_retry(self._defaults.get("retry", {}) | model.get("retry", {})),
                data=_data(model.get("accuracy")),
                place=(start.line + 1, start.column + 1),
            )

    def _check_source(self, model: dict[str, Any]) -> None:
        source: Placed = model["source"]
        scheme, colon, rest = source.value.partition(":")
        if scheme in ("http", "git", "file") and colon:
            known = (
                "a path, a .skel path, zoo:NAME, https:, pypi:NAME==VERSION!MEMBER or npm:NAME@VERSION!MEMBER"
            )
            text = f"{scheme}: sources are not supported by this version; use {known}"
            self._problems.add(source.node, text)
        elif scheme == "pypi" and not _is_pypi(rest):
            self._problems.add(source.node, f"{source.value!r}: expected pypi:NAME==VERSION!MEMBER")
        for key in ("platform", "python"):
            if key in model and scheme != "pypi":
                self._problems.add(model[key].node, f"{key!r} is for pypi: sources only")

    def _plan(self, own: Placed | None) -> MeasurePlan:
        default: Placed | None = self._defaults.get("measure")
        blocks = [block for block in (default, own) if block is not None]
        try:
            return plan(self._level, *(block.value for block in blocks))
        except ValueError as error:
            self._problems.add(blocks[-1].node if blocks else self._root, str(error))
            return LEVELS[self._level]

    def _delegates(self) -> Iterable[DelegateEntry]:
        names: set[str] = set()
        forms: dict[str, Placed] = self._values["delegates"]
        if not forms and is_whole(self._values, self._root, "delegates"):
            self._problems.add(self._root, "no delegates; write e.g. `delegates: {cpu: {kind: cpu}}`")
        for name, placed in forms.items():
            for entry in expand(name, placed.value):
                if entry.name in names:
                    self._problems.add(placed.node, f"two delegates would be called {entry.name!r}")
                names.add(entry.name)
                yield entry

    def _exclude(
        self, models: Sequence[str] | None, delegates: Sequence[str] | None
    ) -> Iterable[ExcludeRule]:
        for placed in self._values.get("exclude", ()):
            rule: dict[str, Placed] = placed.value
            if not rule:
                self._problems.add(placed.node, "an empty rule would exclude everything")
            self._check_class_rule(rule)
            for key, names in (("model", models), ("delegate", delegates)):
                pattern = rule.get(key)
                if (
                    pattern
                    and names is not None
                    and not any(fnmatchcase(name, pattern.value) for name in names)
                ):
                    hint = suggestion(pattern.value, names)
                    self._problems.add(pattern.node, f"no {key} is called {pattern.value!r}{hint}")
            yield ExcludeRule(**{key: pattern.value for key, pattern in rule.items()})

    def _check_class_rule(self, rule: dict[str, Placed]) -> None:
        """Refuse rules about devices where a selector counts.

        A class is bound to a device when its cell starts, long after the rules were applied.
        """
        counted = any("count" in selector for selector in self._values.get("devices", ()))
        if "device" in rule and counted:
            text = "a rule about devices and a selector with 'count' do not go together; narrow the selector"
            self._problems.add(rule["device"].node, text)

    def _budgets(self) -> Iterable[str]:
        for placed in self._values.get("budgets", ()):
            try:
                budget = read_budget(placed.value)
            except UsageError as error:
                self._problems.add(placed.node, str(error))
                continue
            if budget.figure == RATIO and self._against() is None:
                text = f"{budget.text} needs an earlier campaign: baseline: {{against: {{campaign: latest}}}}"
                self._problems.add(placed.node, text)
            yield budget.text

    def _notify(self) -> Notify | None:
        found: dict[str, str] = self._values.get("notify", {})
        return Notify(found["url"], found.get("link")) if "url" in found else None

    def _against(self) -> str | None:
        found: dict[str, str] = self._values.get("baseline", {}).get("against", {})
        return found.get("campaign")

    def _baseline(self, names: Sequence[str] | None) -> str | None:
        if self._values.get("baseline") == {}:
            self._problems.add(self._root, "an empty baseline; write `baseline: {delegate: NAME}`")
        placed: Placed | None = self._values.get("baseline", {}).get("delegate")
        if placed is None:
            return None
        if names is not None and placed.value not in names:
            hint = suggestion(placed.value, names)
            self._problems.add(
                placed.node, f"the baseline {placed.value!r} is no delegate of this file{hint}"
            )
        return str(placed.value)


def _value(placed: Placed | None) -> Any:
    return None if placed is None else placed.value


def _is_pypi(text: str) -> bool:
    requirement, bang, member = text.partition("!")
    name, equals, version = requirement.partition("==")
    return bool(bang and equals and name and version and member)


def _data(value: dict[str, Any] | None) -> DataEntry | None:
    if value is None:
        return None
    rest = {name: value[name] for name in ("sha256", "metric", "at_least") if name in value}
    return DataEntry(value["dataset"].value, **rest)


def _retry(value: dict[str, Any]) -> RetryEntry | None:
    kinds = value.get("kinds")
    return RetryEntry(value.get("times"), None if kinds is None else tuple(kinds)) if value else None


def _input(value: dict[str, Any]) -> InputSpec:
    random = value.get("random", {})
    low, high = random.get("range", (None, None))
    return InputSpec(shape=value.get("shape"), seed=random.get("seed", 0), low=low, high=high)
