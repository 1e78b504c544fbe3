"""Brings a campaign's labelled data from its source into the store, and its hash into the measuring plan."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from agent.wire.messages import LabelledData
from orchestrator.errors import UsageError
from orchestrator.manifest.campaign import Campaign, DataEntry, ModelEntry
from orchestrator.sources.resolve import CheckedSources, fetch_all
from orchestrator.sources.store import Store, StoredFile
from orchestrator.sources.web import Web

LABELS_MEMBER: Final = "labels.npy"


def with_data(
    campaign: Campaign, checked: CheckedSources, store: Store, note: Callable[[str], None], web: Web
) -> Campaign:
    """The campaign whose plans name the labelled data in the store; `checked`: the campaign's own models.

    Raises as `resolve_all`, and `UsageError` for a file that is not a `.npz` with labels.
    """
    asked = [(model, model.data) for model in campaign.models if model.data is not None]
    found = fetch_all(checked.labelled_data, store, note, web)
    planned = {m.id: _planned(m, data, file, store) for (m, data), file in zip(asked, found, strict=True)}
    return replace(campaign, models=tuple(planned.get(model.id, model) for model in campaign.models))


def _planned(model: ModelEntry, data: DataEntry, file: StoredFile, store: Store) -> ModelEntry:
    _check(store.path(file.sha256), data.source)
    labelled = LabelledData(
        sha256=file.sha256, size_bytes=file.size_bytes, metric=data.metric, at_least=data.at_least
    )
    return replace(model, plan=model.plan.model_copy(update={"labelled": labelled}))


def _check(path: Path, source: str) -> None:
    """Raise `UsageError` unless the archive has the arrays; they are read only where the model runs."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {member.filename for member in archive.infolist()}
    except (OSError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"{source}: labelled data is a .npz file (numpy.savez), and this file is not one: {error}"
        ) from error
    if LABELS_MEMBER not in names or len(names) < 2:
        raise UsageError(
            f"{source}: labelled data has an array 'labels' and one per input (or 'inputs'); "
            f"this has {', '.join(sorted(names)) or 'nothing'}"
        )
