"""Brings a campaign's labelled data from its source into the store, and its hash into the measuring plan."""

import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace

from orchestrator.errors import UnreachableError, UsageError
from orchestrator.manifest.campaign import Campaign, DataEntry, ModelEntry
from orchestrator.sources import labelled
from orchestrator.sources.resolve import CheckedSources, StoredModel, fetch_labelled_data, not_fetched
from orchestrator.sources.store import Store, StoredFile
from orchestrator.sources.web import Web
from runtime.model.reader import load_model


def with_data(
    campaign: Campaign,
    models: Sequence[StoredModel],
    checked: CheckedSources,
    store: Store,
    note: Callable[[str], None],
    web: Web,
) -> tuple[Campaign, tuple[StoredModel, ...]]:
    """Return the campaign whose plans name the labelled data in the store, and its models; `checked`: its
    sources.

    A model whose data cannot be reached becomes `unreachable`. Raises `UsageError` as `resolve_all`, for a
    file that is not a `.npz` with labels, and for one that does not fit its model.
    """
    asked = [(model, model.data) for model in campaign.models if model.data is not None]
    found = fetch_labelled_data(checked.labelled_data, store, note, web)
    sha256_of = {model.id: model.sha256 for model in models}
    planned: dict[str, ModelEntry] = {}
    reasons: dict[str, str] = {}
    for (model, data), file in zip(asked, found, strict=True):
        if isinstance(file, UnreachableError):
            reasons[model.id] = f"labelled data: {file}"
        else:
            require_fit(model, store, sha256_of[model.id], file)
            planned[model.id] = _planned(model, data, file)
    return (
        replace(campaign, models=tuple(planned.get(model.id, model) for model in campaign.models)),
        tuple(_without_data(model, reasons[model.id]) if model.id in reasons else model for model in models),
    )


def require_fit(model: ModelEntry, store: Store, sha256: str, data: StoredFile) -> None:
    """Raise `UsageError` for labelled data that does not fit its model; `sha256`: the model's file."""
    where = f"{model.id}: labelled data {model.data.source if model.data else ''}"
    if not labelled.is_arrays(store.path(data.sha256)):
        # What the pictures say is read where the model runs.
        return
    try:
        arrays = labelled.headers(store.path(data.sha256))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UsageError(f"{where}: {error}") from error
    try:
        parsed = load_model(store.path(sha256)) if sha256 else None
    except ValueError:
        # Its cells end with the reader's reason.
        return
    metric = model.data.metric if model.data else "top1"
    why = None if parsed is None else labelled.misfit(parsed, arrays, model.inputs, metric)
    if why is not None:
        raise UsageError(f"{where}: {why}")


def _without_data(model: StoredModel, reason: str) -> StoredModel:
    return model if model.unreachable else not_fetched(model.id, model.origin, reason)


def _planned(model: ModelEntry, data: DataEntry, file: StoredFile) -> ModelEntry:
    judged_by = data.planned(file.sha256, file.size_bytes)
    return replace(model, plan=model.plan.model_copy(update={"labelled": judged_by}))
