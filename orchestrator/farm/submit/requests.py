"""Builds campaigns from requests of users' machines: the document, and the hashes of files sent before.

The farm reads the document by its own rules, whatever the sender made of it, and fetches nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from agent.wire.bounded import Sha256, Text
from agent.wire.plan import INPUT_SETS, InputData, InputSets, LabelledData, Shape, Size
from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.config.limits import require_budget
from orchestrator.errors import UsageError
from orchestrator.farm.submit.submission import Placed, Submission, SubmissionPlan
from orchestrator.manifest.campaign import Campaign, ModelEntry, narrow
from orchestrator.manifest.labels import check_labels
from orchestrator.manifest.load import parse_manifest
from orchestrator.manifest.plans import require_samples_fit
from orchestrator.policy.preview import CellPreview
from orchestrator.policy.rights import require_priority
from orchestrator.sources.content import Requirement, require_array, require_labelled_data, require_model
from orchestrator.sources.datasets import require_fit
from orchestrator.sources.store import Store, StoredFile

_LONGEST_REASON: Final = 500
"""Characters of a sender's reason why a model could not be fetched; cells and pages show it."""


@dataclass(frozen=True, slots=True)
class SentFile:
    """A file by its hash. Its fields have the wire's types, as those below: what they let in becomes jobs."""

    sha256: Sha256
    size_bytes: Size


@dataclass(frozen=True, slots=True)
class SentInput:
    """The data of an input by its hash, and the shape of a sample."""

    sha256: Sha256
    size_bytes: Size
    shape: Shape


@dataclass(frozen=True, slots=True)
class SentModel:
    """A model of the document as the sender has it. `file`: None where it could not be fetched, for the
    reason `unreachable`; `data`: its labelled data; `inputs`: the data of its inputs, by name, of which there
    are so many `input_sets`.
    """

    id: str
    file: SentFile | None
    data: SentFile | None = None
    unreachable: str | None = None
    inputs: Mapping[str, SentInput] = field(default_factory=dict)
    input_sets: InputSets = INPUT_SETS

    @property
    def sha256(self) -> str:
        """64 hex digits; empty without a file."""
        return "" if self.file is None else self.file.sha256

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return 0 if self.file is None else self.file.size_bytes


@dataclass(frozen=True, slots=True)
class Request:
    """The request of a user's machine. `file`: the document's name in messages; `delegates`, `only`,
    `devices`: the part of it to measure; `priority`, `level`: instead of the document's. `labels`: all of the
    campaign's; None: the document's.
    """

    document: str
    file: Text
    models: tuple[SentModel, ...]
    delegates: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    priority: int = 0
    force: bool = False
    devices: tuple[str, ...] = ()
    level: str | None = None
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Requests:
    """Plans and stores requests."""

    home: FarmHome
    lab: LabConfig
    submission: Submission

    def preview(self, request: Request) -> tuple[CellPreview, ...]:
        """Return the plan of a submission for each cell; its files need not be here. Raises as `place`."""
        return self._planned(_campaign(request, self.lab), request, _sent(request)).preview

    def place(self, request: Request) -> Placed:
        """Plan a request and store it, or find the same user's unfinished campaign of the same content.

        Raises `UsageError` (`ManifestError` for mistakes in the document) and `UnreachableError` as
        `Submission`, and `FarmError` where the store's budget is used.
        """
        campaign = _campaign(request, self.lab)
        store = Store(self.home.store, self.lab.limits.artifact_bytes, self.lab.limits)
        # As for a submission from here: until the database names the files, pruning must not delete them.
        with store.in_use():
            require_budget(store.root, self.lab.limits)
            arrived = _arrived(campaign, request, store)
            plan = self._planned(campaign, request, arrived)
            placed = Placed(self.submission.submit(plan), plan.preview)
            for entry in plan.campaign.models:
                files: list[SentFile | LabelledData | InputData | None] = [
                    arrived[entry.id].file, entry.plan.labelled, *(i.data for i in entry.inputs.values())
                ]  # fmt: skip
                # A campaign names them now: they no longer count as what their sender left unnamed.
                for file in files:
                    if file is not None:
                        store.named(file.sha256)
            return placed

    def _planned(
        self, campaign: Campaign, request: Request, models: Mapping[str, SentModel]
    ) -> SubmissionPlan:
        require_priority(request.priority, self.submission.user)
        for model in campaign.models:
            if model.id not in models:
                raise UsageError(f"{request.file}: no file was sent for model {model.id}")
        entries = (_with_data(_with_inputs(m, models[m.id]), models[m.id]) for m in campaign.models)
        planned = replace(campaign, models=tuple(entries))
        return self.submission.plan(planned, models.values(), force=request.force)


def _campaign(request: Request, lab: LabConfig) -> Campaign:
    campaign = parse_manifest(request.document.encode(), request.file, request.level)
    campaign = narrow(campaign, request.delegates, request.only, request.devices)
    require_samples_fit(campaign, lab)
    if request.labels is not None:
        check_labels(request.labels)
        campaign = replace(campaign, labels=dict(request.labels))
    return replace(campaign, priority=request.priority)


def _sent(request: Request) -> dict[str, SentModel]:
    """Return the models by id, each without a file with a reason that is short enough to be shown."""
    return {
        model.id: model if model.file else replace(model, unreachable=_reason(model))
        for model in request.models
    }


def _reason(model: SentModel) -> str:
    return (model.unreachable or "the sender had no file")[:_LONGEST_REASON]


def _arrived(campaign: Campaign, request: Request, store: Store) -> dict[str, SentModel]:
    """Return the models with their files' sizes here. Raises `UsageError` for a missing or other file."""
    found = _sent(request)
    for entry in campaign.models:
        model = found.get(entry.id)
        if model is None or model.file is None:
            continue
        here = _kept(store, model.file, f"model {entry.id}", require_model)
        data = model.data
        if data is not None:
            labelled = _kept(store, data, f"labelled data of {entry.id}", require_labelled_data)
            require_fit(entry, store, here.sha256, labelled)
            data = SentFile(labelled.sha256, labelled.size_bytes)
        inputs = {
            name: replace(
                sent, size_bytes=_kept(store, sent, f"data of input {name!r}", require_array).size_bytes
            )
            for name, sent in model.inputs.items()
        }
        file = SentFile(here.sha256, here.size_bytes)
        found[entry.id] = replace(model, file=file, data=data, inputs=inputs)
    return found


def _kept(store: Store, file: SentFile | SentInput, what: str, require: Requirement) -> StoredFile:
    # Touched first: what is marked as needed is not collected before it is used.
    found = store.find(file.sha256) if store.touch(file.sha256) else None
    if found is None:
        raise UsageError(f"{what}: the farm has no file {file.sha256[:12]}; submit again, which sends it")
    # Looked at here: what the sender calls a file counts for nothing.
    with store.open(found.sha256) as opened:
        require(opened, what)
    return found


def _with_inputs(entry: ModelEntry, model: SentModel) -> ModelEntry:
    """Return the model whose inputs name their data. Raises `UsageError` where some were not sent."""
    if not entry.own_inputs or model.file is None:
        return entry
    inputs = dict(entry.inputs)
    for name in entry.own_inputs:
        sent = model.inputs.get(name)
        if sent is None:
            raise UsageError(f"model {entry.id}: the data of its input {name!r} was not sent")
        data = InputData(sha256=sent.sha256, size_bytes=sent.size_bytes)
        inputs[name] = inputs[name].model_copy(update={"shape": sent.shape, "data": data})
    plan = entry.plan.model_copy(update={"input_sets": model.input_sets})
    return replace(entry, inputs=inputs, plan=plan)


def _with_data(entry: ModelEntry, model: SentModel) -> ModelEntry:
    if entry.data is None or model.file is None:
        return entry
    if model.data is None:
        raise UsageError(f"model {entry.id}: its labelled data was not sent")
    judged_by = entry.data.planned(model.data.sha256, model.data.size_bytes)
    return replace(entry, plan=entry.plan.model_copy(update={"labelled": judged_by}))
