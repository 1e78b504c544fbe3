"""Reads `models.yaml` strictly: the result is a campaign, or every mistake with its line and column."""

from orchestrator.manifest.bare import InputOptions, Wanted, campaign_for_models
from orchestrator.manifest.campaign import (
    Campaign,
    CellRule,
    DelegateEntry,
    DeviceSelector,
    ModelEntry,
    OptionValue,
    narrow,
)
from orchestrator.manifest.editors import manifest_schema
from orchestrator.manifest.load import load_manifest, parse_manifest
from orchestrator.manifest.plans import require_samples_fit
from orchestrator.manifest.problems import ManifestError
from orchestrator.manifest.values import JsonSchema

__all__ = [
    "Campaign",
    "CellRule",
    "DelegateEntry",
    "DeviceSelector",
    "InputOptions",
    "JsonSchema",
    "ManifestError",
    "ModelEntry",
    "OptionValue",
    "Wanted",
    "campaign_for_models",
    "load_manifest",
    "manifest_schema",
    "narrow",
    "parse_manifest",
    "require_samples_fit",
]
