"""A part of a campaign: some of its models, some of its delegates."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.manifest.campaign import DeviceSelector, narrow
from orchestrator.manifest.load import load_manifest
from orchestrator.manifest.problems import suggestion
from tests.orchestrator.manifest.manifests import MINIMAL, campaign_of


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


def test_models_and_devices_are_chosen_by_globs_as_submissions_of_their_own(tmp_path: Path) -> None:
    three = MINIMAL.replace(
        "{id: a, source: a.tflite}",
        "\n  - ".join(f"{{id: {name}, source: a.tflite}}" for name in ("face_a", "face_b", "iris")),
    )
    campaign = campaign_of(tmp_path, three)
    assert [entry.id for entry in narrow(campaign, only=["face_*"]).models] == ["face_a", "face_b"]
    assert [entry.id for entry in narrow(campaign, only=["iris", "*_b"]).models] == ["face_b", "iris"]
    one = narrow(campaign, devices=["gpu-0"])
    assert one.devices == (DeviceSelector(name="gpu-0"),)
    assert (
        len(
            {
                campaign.manifest_sha256,
                one.manifest_sha256,
                narrow(campaign, devices=["gpu-1"]).manifest_sha256,
            }
        )
        == 3
    )
    with pytest.raises(UsageError, match="no model of this campaign matches 'fase_"):
        narrow(campaign, only=["iris", "fase_*"])


def test_a_level_of_the_command_line_stands_in_for_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "models.yaml"
    path.write_text(MINIMAL)
    quick, standard = load_manifest(path), load_manifest(path, "standard")
    assert (quick.level, standard.level) == ("quick", "standard")
    assert standard.models[0].plan.min_blocks == 6
    assert quick.manifest_sha256 != standard.manifest_sha256
    assert load_manifest(path, "quick") == quick
    with pytest.raises(UsageError, match="unknown level 'quik'; did you mean 'quick'"):
        load_manifest(path, "quik")


def test_a_part_of_a_name_is_what_was_meant() -> None:
    known = ["isnet", "torchvision_resnet18", "mobilenet_v2"]
    assert suggestion("resnet18", known) == "; did you mean 'torchvision_resnet18'?"
    assert suggestion("mobilnet_v2", known) == "; did you mean 'mobilenet_v2'?"
