"""The interface through which the site reads a farm; `orchestrator.farm.reading` implements it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent.wire.measurement import ProcessSamples
from orchestrator.results.records import CampaignRecord, CellRecord, ManifestRecord
from runtime.model.facts import ModelFacts


class SiteSource(Protocol):
    """The read-only questions that the pages ask."""

    def campaigns(self) -> Sequence[CampaignRecord]:
        """Every campaign, in any order."""

    def cells(self, campaign_id: str) -> Sequence[CellRecord]:
        """The cells of a campaign, in the order of its manifest."""

    def samples(self, cell: CellRecord) -> Sequence[ProcessSamples]:
        """Raw samples of a cell's counted result, one entry per process; empty where none are stored.

        Raises `FarmError` where they are stored but cannot be read.
        """

    def manifest(self, campaign_id: str) -> ManifestRecord | None:
        """The campaign file of a campaign, with the origins of its models; None where none was kept."""

    def model_facts(self, sha256: str) -> ModelFacts | None:
        """What a model file is, by its bounded reader; None where the file is not here, or is no model."""
