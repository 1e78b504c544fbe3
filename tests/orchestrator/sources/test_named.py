"""The models that the words of a command line name."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.manifest.schema import MAX_MODELS
from orchestrator.sources import named
from orchestrator.sources.named import campaign_name, models_named


def files(folder: Path, *names: str) -> list[str]:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return [str(folder / name) for name in names]


@pytest.mark.parametrize(
    ("names", "ids"),
    [
        (["net.tflite"], ["net"]),
        (["a/model.tflite", "b/model.tflite"], ["a-model", "b-model"]),
        (["x/a/model.tflite", "y/a/model.tflite", "n.tflite"], ["x-a-model", "y-a-model", "n"]),
        (["odd\n.tflite"], ["odd?"]),
        ([f"{'m' * 150}.tflite"], ["m" * 100]),
    ],
)
def test_a_model_is_called_by_its_file_and_as_many_folders_as_tell_it_apart(
    tmp_path: Path, names: list[str], ids: list[str]
) -> None:
    words = files(tmp_path, *names)
    assert models_named(words) == dict(zip(ids, words, strict=True))


def test_models_of_packages_and_addresses_are_called_by_their_files() -> None:
    words = [
        "https://example.com/v1/net.tflite?download=true", "https://example.com/v2/net.tflite",
        "pypi:mediapipe==0.10.21!mediapipe/modules/a.tflite", "npm:@mediapipe/pose@0.5.1!package/b.tflite",
        "zoo:torchvision_resnet18",
    ]  # fmt: skip
    assert list(models_named(words)) == ["v1-net", "v2-net", "a", "b", "torchvision_resnet18"]
    assert list(models_named(words).values()) == words


def test_a_file_is_named_once_and_those_that_nothing_tells_apart_are_refused(tmp_path: Path) -> None:
    both = files(tmp_path, "net.tflite", "net.skel")
    assert list(models_named([both[0], both[0], str(tmp_path / "*.tflite")])) == ["net"]
    with pytest.raises(UsageError, match=r"would be called 'net': .*net\.skel and .*net\.tflite; name one"):
        models_named([str(tmp_path)])
    # A name of one file that is the name by folder of another.
    clash = files(tmp_path, "a/x.tflite", "b/x.tflite", "a-x.tflite")
    with pytest.raises(UsageError, match="would be called 'a-x'"):
        models_named(clash)


def test_a_folder_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path, *(f"{n}.tflite" for n in range(MAX_MODELS + 1)))
    with pytest.raises(UsageError, match=f"{MAX_MODELS + 1} models; a campaign has at most {MAX_MODELS}"):
        models_named([str(tmp_path)])
    monkeypatch.setattr(named, "_MOST_FOUND", 10)
    with pytest.raises(UsageError, match="has more than 10 files; name a part of them"):
        models_named([str(tmp_path)])
    with pytest.raises(UsageError, match="matches more than 10 files"):
        models_named([str(tmp_path / "*.tflite")])


def test_a_campaign_of_several_models_is_called_by_their_folder_or_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets/deep").mkdir(parents=True)
    assert campaign_name(["nets/a.tflite"], ["a"]) == "a"
    assert campaign_name(["nets/deep"], ["a", "b"]) == "deep"
    assert campaign_name(["nets/*/*.tflite"], ["a", "b"]) == "nets"
    assert campaign_name(["."], ["a", "b"]) == tmp_path.name
    assert campaign_name(["x.tflite", "nets"], ["x", "a", "b"]) == "x+2"
    assert campaign_name(["zoo:hf_*"], ["hf_a", "hf_b"]) == "hf_a+1"
