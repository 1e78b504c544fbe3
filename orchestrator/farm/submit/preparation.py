"""Brings everything a campaign needs into the store: its models, its labelled data, a lab's uploads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.config.lab import LabConfig
from orchestrator.config.limits import require_budget
from orchestrator.manifest.campaign import Campaign
from orchestrator.sources import CheckedSources, StoredModel, Web, resolve_all
from orchestrator.sources.datasets import with_data
from orchestrator.sources.store import Store


def prepared(
    campaign: Campaign, checked: CheckedSources, store: Store, lab: LabConfig, note: Callable[[str], None]
) -> tuple[Campaign, tuple[StoredModel, ...]]:
    """Put the campaign's models and labelled data into the store; `note` receives a line for each slow step
    and for each model whose cells will fail.

    Raises `FarmError` where the store's budget is used, and as `resolve_all` and `with_data`.
    """
    require_budget(store.root, lab.limits)
    web = Web(lab.allow_private, lab.npm_registry)
    models = resolve_all(checked, store, note, web)
    campaign, models = with_data(campaign, models, checked, store, note, web)
    for model in models:
        if model.problem:
            note(f"warning: {model.id}: not a usable .tflite, its cells will fail: {model.problem}")
        if model.unreachable:
            note(f"warning: {model.id}: its cells will fail: {model.unreachable}")
    return campaign, models


def files_of(campaign: Campaign, models: Sequence[StoredModel]) -> list[str]:
    """Every file of a submission, by its sha256."""
    data = [model.plan.labelled.sha256 for model in campaign.models if model.plan.labelled is not None]
    return [model.sha256 for model in models if model.sha256] + data
