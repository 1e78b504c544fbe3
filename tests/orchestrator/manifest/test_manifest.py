"""The meaning of a campaign file's keys."""

from __future__ import annotations

from pathlib import Path

from orchestrator.manifest.campaign import CellRule, DelegateEntry, DeviceSelector, RetryEntry
from orchestrator.manifest.load import load_manifest
from orchestrator.manifest.plans import LEVELS
from tests.needs import REPOSITORY
from tests.orchestrator.manifest.manifests import DOCUMENT, FULL, MINIMAL, load, model


def test_the_demo_campaign_is_what_its_file_says() -> None:
    campaign = load_manifest(REPOSITORY / "examples" / "models.yaml")
    assert campaign.name == "demo"
    assert campaign.level == "quick"
    assert [m.id for m in campaign.models] == [
        "face_detection_short_range",
        "face_landmark",
        "hand_landmark_lite",
        "torchvision_mobilenet_v2",
        "torchvision_mobilenet_v3_small",
        "torchvision_resnet18",
        "torchvision_squeezenet1_1",
        "torchvision_efficientnet_b0",
        "torchvision_mobilenet_v2__static_int8",
    ]
    assert [d.name for d in campaign.delegates] == ["cpu", "gpu", "gpu-bf16", "litert"]
    assert campaign.baseline_delegate == "litert"
    assert campaign.reuse == "same-fingerprint"
    assert all(m.sha256 for m in campaign.models)
    assert {m.plan for m in campaign.models} == {LEVELS["quick"]}
    assert (campaign.models[0].platform, campaign.models[0].python) == ("manylinux_2_28_x86_64", "3.11")


def test_an_age_below_a_second_is_kept_as_it_is_written(tmp_path: Path) -> None:
    for age, seconds in (("500ms", "0.5"), ("1.5s", "1.5"), ("365d", "31536000")):
        campaign = load(tmp_path, FULL.replace("max-age:7d", f"max-age:{age}"))
        assert campaign.reuse == f"max-age:{seconds}"


def test_every_key_of_the_schema_reaches_the_campaign(tmp_path: Path) -> None:
    campaign = load(tmp_path, FULL)
    first, second = campaign.models
    assert campaign.labels == {"team": "vision", "run": "7"}
    assert campaign.reuse == "max-age:604800"
    assert first.python == "3.10"
    assert (first.plan.level, first.plan.rounds, first.plan.target) == ("standard", 5, 0.011)
    assert (first.plan.min_blocks, first.plan.max_blocks) == (4, 8)
    assert (first.plan.warmup_runs, first.plan.warmup_seconds) == (7, 0.25)
    assert (first.plan.slice_runs, first.plan.slice_seconds) == (9, 0.5)
    assert (second.plan.min_blocks, second.plan.max_blocks, second.plan.target) == (4, 4, 0.02)
    assert (first.soft_limit_s, second.soft_limit_s) == (30, 900)
    image = first.inputs["image"]
    assert (image.shape, image.seed, image.low, image.high) == ((1, 224, 224, 3), 7, -1, 1)
    assert campaign.delegates == (
        DelegateEntry("cpu-t1", "cpu", {"threads": 1}),
        DelegateEntry("cpu-t4", "cpu", {"threads": 4}),
        DelegateEntry("gpu", "gpu", {"precision": "fp32"}),
    )
    assert campaign.devices == (
        DeviceSelector(kind="gpu", vendor="nvidia", labels={"room": "a"}),
        DeviceSelector(name="cpu-*"),
    )
    assert campaign.exclude == (CellRule(model="b", delegate="cpu-*"),)
    assert (campaign.baseline_delegate, campaign.against) == ("cpu-t4", "weekly~1")


def test_a_model_says_how_long_it_waits_what_is_tried_again_and_what_it_reuses(tmp_path: Path) -> None:
    own = "limits: {queue: 2h}, reuse: never, retry: {kinds: [crash]}"
    defaults = "defaults: {limits: {job: 1m, queue: 1d}, retry: {times: 0}, reuse: same-fingerprint}"
    one = load(tmp_path, model(own) + defaults + "\n").models[0]
    assert (one.soft_limit_s, one.queue_limit_s, one.reuse) == (60.0, 7200.0, "never")
    assert one.retry == RetryEntry(0, ("crash",))
    bare = load(tmp_path, MINIMAL).models[0]
    assert (bare.queue_limit_s, bare.reuse, bare.retry) == (None, None, None)


def test_the_hash_of_a_campaign_is_that_of_its_file(tmp_path: Path) -> None:
    one = load(tmp_path, MINIMAL).manifest_sha256
    assert load(tmp_path, MINIMAL).manifest_sha256 == one
    assert load(tmp_path, MINIMAL + "# a remark\n").manifest_sha256 != one


def test_the_documented_file_is_valid(tmp_path: Path) -> None:
    campaign = load(tmp_path, DOCUMENT.split("```yaml\n")[1].split("```")[0])
    assert [d.name for d in campaign.delegates] == ["cpu-t1", "cpu-t2", "gpu", "litert"]
