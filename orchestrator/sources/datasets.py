"""Brings a campaign's labelled data from its source into the store, and its hash into the measuring plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agent.wire.messages import LabelledData
from orchestrator.manifest.campaign import Campaign, DataEntry, ModelEntry
from orchestrator.sources.resolve import CheckedSources, fetch_labelled_data
from orchestrator.sources.store import Store, StoredFile
from orchestrator.sources.web import Web


def with_data(
    campaign: Campaign, checked: CheckedSources, store: Store, note: Callable[[str], None], web: Web
) -> Campaign:
    """The campaign whose plans name the labelled data in the store; `checked`: the campaign's own models.

    Raises as `resolve_all`, and `UsageError` for a file that is not a `.npz` with labels.
    """
    asked = [(model, model.data) for model in campaign.models if model.data is not None]
    found = fetch_labelled_data(checked.labelled_data, store, note, web)
    planned = {m.id: _planned(m, data, file) for (m, data), file in zip(asked, found, strict=True)}
    return replace(campaign, models=tuple(planned.get(model.id, model) for model in campaign.models))


def _planned(model: ModelEntry, data: DataEntry, file: StoredFile) -> ModelEntry:
    labelled = LabelledData(
        sha256=file.sha256, size_bytes=file.size_bytes, metric=data.metric, at_least=data.at_least
    )
    return replace(model, plan=model.plan.model_copy(update={"labelled": labelled}))
