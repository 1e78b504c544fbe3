"""Builds a `Campaign` from a `models.yaml`, or raises every mistake in it with its line and column."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias

import yaml
from pydantic import ValidationError

from agent.wire.plan import InputSpec, MeasurePlan, OutputSpec
from orchestrator.errors import UsageError
from orchestrator.manifest import campaign as values
from orchestrator.manifest import schema
from orchestrator.manifest.budget import RATIO, read_budget
from orchestrator.manifest.delegates import expand, settled
from orchestrator.manifest.document import Places, compose, read_bytes
from orchestrator.manifest.keys import written
from orchestrator.manifest.measure_keys import Measure
from orchestrator.manifest.plans import LEVELS, plan, soft_limit_s
from orchestrator.manifest.problems import Problem, Problems, suggestion
from runtime.model.skeleton import fitting_skeletons

_PYPI = re.compile(r"(?!==)[^!]+==[^!]+!.+")

CheckSources: TypeAlias = Callable[[Sequence[values.ModelEntry]], Iterable[Problem]]
"""Returns the mistakes in the sources of models, which another room knows how to check."""


def load_manifest(
    path: Path, level: str | None = None, sources: CheckSources | None = None
) -> values.Campaign:
    """Read and check a campaign file; `level`: in place of the file's.

    Raises `ManifestError` (a `UsageError`) with every mistake: of form, between places of the file, and what
    `sources` finds. Raises `UsageError` for an unknown level.
    """
    return parse_manifest(read_bytes(path), str(path), level, sources)


def parse_manifest(
    content: bytes, file: str, level: str | None = None, sources: CheckSources | None = None
) -> values.Campaign:
    """Check the content of a campaign file, which messages call `file`. Raises as `load_manifest`."""
    if level is not None and level not in LEVELS:
        raise UsageError(f"unknown level {level!r}{suggestion(level, LEVELS)}")
    problems = Problems(file)
    root = compose(content, file)
    # Names are known where every entry could be read: of another file, a missing name may be an unread one's.
    lengths = {
        key.value: len(node.value)
        for key, node in root.value
        if isinstance(key, yaml.ScalarNode) and isinstance(node, yaml.CollectionNode)
    }
    manifest, places = _read(root, problems)
    # Another level is another submission of the file and must not be taken for it.
    changed = level is not None and level != manifest.level
    identity = content + (f"\nlevel: {level}".encode() if changed else b"")
    builder = _Builder(manifest, places, problems, level or manifest.level, lengths)
    campaign = builder.campaign(hashlib.sha256(identity).hexdigest())
    # A file without another mistake is checked by whoever resolves its sources: each file is read once.
    if problems and sources is not None:
        problems.extend(sources(campaign.models))
    problems.raise_any()
    return replace(campaign, written=values.Written(content.decode(), file, level=level))


def _read(root: yaml.Node, problems: Problems) -> tuple[schema.Manifest, Places]:
    """Note every mistake of form, and return what of the file is left without those parts of it."""
    places = Places(root, problems)
    form: type[schema.Manifest] = schema.Manifest
    noted = problems
    while True:
        try:
            return form.model_validate(places.values), places
        except ValidationError as error:
            places.note(error, noted)
            places.drop_mistakes(error)
        # A mapping that loses a required key here is dropped by the next look; its mistake is noted already.
        form, noted = schema.Readable, Problems(problems.file)
        places = Places(root, noted)


class _Builder:
    """Joins the checked values, and notes mistakes that arise between two places of the file."""

    def __init__(
        self,
        file: schema.Manifest,
        places: Places,
        problems: Problems,
        level: str,
        lengths: Mapping[str, int],
    ) -> None:
        self._file = file
        self._places = places
        self._problems = problems
        self._level = level
        self._lengths = lengths
        self._defaults = file.defaults or schema.Defaults()
        against = file.baseline.against if file.baseline else None
        self._against = against.campaign if against else None

    def campaign(self, manifest_sha256: str) -> values.Campaign:
        models = tuple(self._models())
        delegates = tuple(self._delegates())
        named = [entry.name for entry in delegates] if self._is_whole("delegates") else None
        ids = [entry.id for entry in models] if self._is_whole("models") else None
        self._check_rules("include", self._file.include, ids, named)
        self._check_rules("exclude", self._file.exclude, ids, named)
        return values.Campaign(
            name=self._file.campaign,
            level=self._level,
            labels=self._file.labels,
            models=models,
            delegates=delegates,
            devices=tuple(values.DeviceSelector(**written(one)) for one in self._selectors),
            shared=self._file.devices == schema.ANY,
            include=tuple(values.CellRule(**written(one)) for one in self._file.include),
            exclude=tuple(values.CellRule(**written(one)) for one in self._file.exclude),
            baseline_delegate=self._baseline(named),
            reuse=self._defaults.reuse,
            manifest_sha256=manifest_sha256,
            priority=self._file.priority,
            budgets=tuple(self._budgets()),
            time_budget_s=self._file.time_budget,
            against=self._against,
            notify=values.Notify(**written(self._file.notify)) if self._file.notify else None,
        )

    @property
    def _selectors(self) -> Sequence[schema.Device]:
        return () if isinstance(self._file.devices, str) else self._file.devices

    def _add(self, text: str, *location: int | str) -> None:
        self._problems.add(self._places.path(*location)[-1], text)

    def _is_whole(self, key: str) -> bool:
        return len(getattr(self._file, key)) == self._lengths.get(key)

    def _models(self) -> Iterable[values.ModelEntry]:
        seen: dict[str, int] = {}
        for index, model in self._written_models():
            at = ("models", index)
            # Where both values begin: PyYAML counts lines and columns from 0.
            name, source = (self._places.path(*at, key)[-1].start_mark for key in ("id", "source"))
            if model.id in seen:
                self._add(f"id {model.id!r} is used twice; first on line {seen[model.id]}", *at, "id")
            seen.setdefault(model.id, name.line + 1)
            self._check_source(model, at)
            if model.accuracy and model.accuracy.max_drop is not None and not self._has_baseline:
                text = "max_drop needs a baseline to drop from: baseline: {delegate: NAME}"
                self._add(text, *at, "accuracy", "max_drop")
            limits = written(self._defaults.limits, model.limits)
            counts = self._plan(model.measure, at)
            kinds = tuple(
                OutputSpec(name=name, kind=one.kind, role=one.role) for name, one in model.outputs.items()
            )
            sets = {} if model.input_sets is None else {"input_sets": model.input_sets}
            counts = counts.model_copy(update={"outputs": kinds, **sets})
            retry = written(self._defaults.retry, model.retry)
            yield values.ModelEntry(
                id=model.id,
                source=model.source,
                sha256=model.sha256,
                platform=model.platform,
                python=model.python,
                plan=counts,
                inputs={name: _input(one) for name, one in model.inputs.items()},
                soft_limit_s=limits.get("job", soft_limit_s(counts)),
                queue_limit_s=limits.get("queue"),
                reuse=model.reuse,
                retry=values.RetryEntry(**retry) if retry else None,
                data=_data(model.accuracy) if model.accuracy else None,
                signature=model.signature,
                own_inputs={
                    name: values.InputSource(one.data, one.sha256)
                    for name, one in model.inputs.items()
                    if one.data
                },
                input_sets=model.input_sets,
                place=(source.line + 1, source.column + 1),
            )

    def _written_models(self) -> Iterable[tuple[int, schema.Model]]:
        """Yield the models with their places in the file; of a pattern over the zoo, each that fits it."""
        for index, model in enumerate(self._file.models):
            scheme, _, pattern = model.source.partition(":")
            if scheme != "zoo" or not set(pattern) & set("*?["):
                yield index, model
                continue
            at = ("models", index)
            if "*" not in model.id:
                self._add(
                    "the source names many models: write an id with a *, for the name of each", *at, "id"
                )
            if model.sha256 is not None:
                self._add("a hash pins one file, and the source names many", *at, "sha256")
            names = fitting_skeletons(pattern)
            if not names:
                self._add(f"no model of the zoo fits {pattern!r}; see: farm model zoo", *at, "source")
            for name in names:
                update = {"id": model.id.replace("*", name), "source": f"zoo:{name}"}
                yield index, model.model_copy(update=update)

    @property
    def _has_baseline(self) -> bool:
        return self._file.baseline is not None and self._file.baseline.delegate is not None

    def _check_source(self, model: schema.Model, at: tuple[int | str, ...]) -> None:
        scheme, colon, rest = model.source.partition(":")
        if scheme in ("http", "git", "file") and colon:
            known = (
                "a path, a .skel path, zoo:NAME, https:, pypi:NAME==VERSION!MEMBER or npm:NAME@VERSION!MEMBER"
            )
            text = f"{scheme}: sources are not supported by this version; use {known}"
            self._add(text, *at, "source")
        elif scheme == "pypi" and not _PYPI.fullmatch(rest):
            self._add(f"{model.source!r}: expected pypi:NAME==VERSION!MEMBER", *at, "source")
        for key in ("platform", "python"):
            if getattr(model, key) is not None and scheme != "pypi":
                self._add(f"{key!r} is for pypi: sources only", *at, key)

    def _plan(self, own: Measure | None, at: tuple[int | str, ...]) -> MeasurePlan:
        default = self._defaults.measure
        place = (*at, "measure") if own else ("defaults", "measure") if default else ()
        try:
            counts = plan(self._level, *(written(one) for one in (default, own) if one))
        except ValueError as error:
            self._add(str(error), *place)
            # The file is refused at the end; until then any plan that is valid serves.
            return LEVELS[self._level]
        if counts.halving is not None and not self._has_baseline:
            text = "halving needs a baseline, with which all take turns: baseline: {delegate: NAME}"
            self._add(text, *place)
        return counts

    def _delegates(self) -> Iterable[values.DelegateEntry]:
        names: set[str] = set()
        if not self._file.delegates and self._is_whole("delegates"):
            self._add("no delegates; write e.g. `delegates: {cpu: {kind: cpu}}`")
        for name, form in self._file.delegates.items():
            try:
                entries = list(expand(name, form))
            except ValueError as error:
                self._add(str(error), "delegates", name)
                continue
            for entry in entries:
                if entry.name in names:
                    self._add(f"two delegates would be called {entry.name!r}", "delegates", name)
                names.add(entry.name)
                options = settled(entry.kind, entry.options)
                if isinstance(options, str) and not self._leaves_out(entry.name):
                    hint = f"; or leave the column out: `exclude: [{{delegate: {entry.name}}}]`"
                    at = ("delegates", name)
                    self._add(f"{entry.name}: {options}{hint if entry.name != name else ''}", *at)
                # Also one that is refused: a rule or the baseline that names it is no further mistake.
                yield entry if isinstance(options, str) else replace(entry, options=options)

    def _leaves_out(self, delegate: str) -> bool:
        """Whether a rule excludes a delegate everywhere, or none includes it anywhere."""
        included = [fnmatchcase(delegate, rule.delegate or "*") for rule in self._file.include]
        # A rule that names models or devices too leaves the delegate in with others.
        return (bool(included) and not any(included)) or any(
            written(rule).keys() == {"delegate"} and fnmatchcase(delegate, rule.delegate or "")
            for rule in self._file.exclude
        )

    def _check_rules(
        self,
        name: str,
        rules: Sequence[schema.Cells],
        models: Sequence[str] | None,
        delegates: Sequence[str] | None,
    ) -> None:
        # A class is bound to a device when its cell starts, long after the rules were applied.
        counted = any(selector.count is not None for selector in self._selectors)
        for index, rule in enumerate(rules):
            at = (name, index)
            if not written(rule):
                self._add(f"an empty rule would {name} everything", *at)
            if rule.device is not None and counted:
                text = (
                    "a rule about devices and a selector with 'count' do not go together; narrow the selector"
                )
                self._add(text, *at, "device")
            for key, glob, names in (("model", rule.model, models), ("delegate", rule.delegate, delegates)):
                if glob is None or names is None or any(fnmatchcase(name, glob) for name in names):
                    continue
                self._add(f"no {key} is called {glob!r}{suggestion(glob, names)}", *at, key)

    def _budgets(self) -> Iterable[str]:
        for index, written_budget in enumerate(self._file.budgets):
            try:
                budget = read_budget(written_budget)
            except UsageError as error:
                self._add(str(error), "budgets", index)
                continue
            if budget.figure == RATIO and self._against is None:
                text = f"{budget.text} needs an earlier campaign: baseline: {{against: {{campaign: latest}}}}"
                self._add(text, "budgets", index)
            yield budget.text

    def _baseline(self, names: Sequence[str] | None) -> str | None:
        baseline = self._file.baseline
        if baseline is None:
            return None
        if not written(baseline):
            self._add("an empty baseline; write `baseline: {delegate: NAME}`")
        name = baseline.delegate
        if name is not None and names is not None and name not in names:
            text = f"the baseline {name!r} is no delegate of this file{suggestion(name, names)}"
            self._add(text, "baseline", "delegate")
        return name


def _data(form: schema.Accuracy) -> values.DataEntry:
    limits = form.at_least, form.max_drop
    return values.DataEntry(
        form.dataset, form.sha256, form.metric, *limits, form.class_offset, form.mean, form.std
    )


def _input(form: schema.Input) -> InputSpec:
    if form.random is None:
        return InputSpec(shape=form.shape)
    low, high = form.random.range or (None, None)
    return InputSpec(
        shape=form.shape, seed=form.random.seed, low=low, high=high, distribution=form.random.distribution
    )
