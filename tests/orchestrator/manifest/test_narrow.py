"""A part of a campaign: some of its models, some of its delegates."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.manifest import Campaign, load_manifest, narrow
from orchestrator.manifest.problems import suggestion
from tests.orchestrator.manifest.test_manifest import MINIMAL


def campaign_of(folder: Path, text: str) -> Campaign:
    path = folder / "models.yaml"
    path.write_text(text)
    return load_manifest(path)


def test_a_delegate_is_chosen_by_name_by_glob_or_by_kind(tmp_path: Path) -> None:
    swept = "fast: {kind: litert, threads: [1, 2]}\n  cpu: {kind: cpu}"
    campaign = campaign_of(tmp_path, MINIMAL.replace("cpu: {kind: cpu}", swept))

    def chosen(*words: str) -> list[str]:
        return [entry.name for entry in narrow(campaign, words).delegates]

    assert chosen("cpu") == ["cpu"]
    assert len(chosen("litert")) == 2
    assert chosen("litert") == chosen("fast*")
    with pytest.raises(UsageError, match="no delegate of this campaign is called 'fas'; did you mean 'fast"):
        chosen("fas")


def test_a_part_of_a_name_is_what_was_meant() -> None:
    known = ["isnet", "torchvision_resnet18", "mobilenet_v2"]
    assert suggestion("resnet18", known) == "; did you mean 'torchvision_resnet18'?"
    assert suggestion("mobilnet_v2", known) == "; did you mean 'mobilenet_v2'?"
