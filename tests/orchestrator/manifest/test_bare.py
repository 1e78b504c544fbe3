"""A submission without a file: models and inputs on the command line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from agent.wire.plan import InputSpec
from orchestrator.errors import UsageError
from orchestrator.manifest.bare import InputOptions, Wanted, campaign_for_models
from orchestrator.manifest.load import parse_manifest
from runtime.measure.inputs import InputSpecNeededError, make_pool
from tests.orchestrator.manifest.manifests import MINIMAL, campaign_of

ONE = {"a": "/m/a.tflite"}


def test_models_without_a_file_are_measured_on_the_farms_own_delegates() -> None:
    campaign = campaign_for_models({"my net": "/m/my net.tflite", "b": "zoo:b"})
    assert campaign.name == "my net"
    assert [d.kind for d in campaign.delegates] == ["cpu", "gpu", "litert"]
    assert [(model.id, model.source) for model in campaign.models] == [
        ("my net", "/m/my net.tflite"), ("b", "zoo:b"),
    ]  # fmt: skip
    assert campaign.baseline_delegate == "litert"
    assert campaign.manifest_sha256 != campaign_for_models(ONE).manifest_sha256
    with pytest.raises(UsageError, match="unknown level 'fast'"):
        campaign_for_models(ONE, Wanted(level="fast"))
    with pytest.raises(UsageError, match="unknown delegate kind 'gpuu'; did you mean 'gpu'"):
        campaign_for_models(ONE, Wanted(delegates=["gpuu"]))
    asked = campaign_for_models(ONE, Wanted(delegates=["litert*", "gpu"]))
    assert [d.kind for d in asked.delegates] == ["litert", "litert-gpu", "gpu"]


def test_an_option_goes_to_the_delegates_that_take_it() -> None:
    asked = Wanted(delegates=["litert", "gpu"], options={"threads": "2", "precision": "fp16"})
    plain, campaign = (campaign_for_models(ONE, one) for one in (Wanted(delegates=["litert", "gpu"]), asked))
    assert [dict(d.options) for d in campaign.delegates] == [
        {"threads": 2}, {"threads": 2, "precision": "fp16"},
    ]  # fmt: skip
    assert campaign.manifest_sha256 != plain.manifest_sha256
    assert campaign.written is not None
    same = parse_manifest(campaign.written.document.encode(), "the same")
    assert same.delegates == campaign.delegates
    for options, words in (
        ({"threds": "2"}, "takes an option 'threds'; did you mean 'threads'"),
        ({"threads": "two"}, "option 'threads' of delegate kind 'litert': expected a whole number"),
        ({"precision": "fp8"}, "unknown precision 'fp8'"),
    ):
        with pytest.raises(UsageError, match=words):
            campaign_for_models(ONE, Wanted(delegates=["litert", "gpu"], options=options))


def test_inputs_of_a_single_model_are_given_on_the_command_line() -> None:
    options = InputOptions(["ids=0..30521", "a=b=-1..1.5"], ["ids=1,128"])
    specs = options.specs()
    assert specs == {
        "ids": InputSpec(shape=(1, 128), low=0, high=30521),
        "a=b": InputSpec(low=-1, high=1.5),
    }
    plain, asked = (campaign_for_models(ONE, Wanted(inputs=i)) for i in ({}, specs))
    assert asked.models[0].inputs == specs
    assert asked.manifest_sha256 != plain.manifest_sha256
    with pytest.raises(UsageError, match="go with one model"):
        campaign_for_models(ONE | {"b": "/m/b.tflite"}, Wanted(inputs=specs))


@pytest.mark.parametrize(
    ("ranges", "shapes", "words"),
    [
        (["ids"], [], "'ids': expected --input NAME=0..999"),
        (["=0..9"], [], "expected --input NAME=0..999"),
        (["ids=5"], [], "--input ids=5: expected two numbers LOW..HIGH"),
        (["ids=9..0"], [], "with LOW below HIGH"),
        (["ids=0..nan"], [], "expected two numbers"),
        ([], ["x=1,2,"], "--shape x=1,2,: expected up to 8 sizes"),
        ([], ["x=1x2"], "expected up to 8 sizes"),
        ([], ["x=99999999999"], "a size is at most 2147483647"),
    ],
)
def test_a_wrong_input_option_says_the_form(ranges: list[str], shapes: list[str], words: str) -> None:
    with pytest.raises(UsageError) as error:
        InputOptions(ranges, shapes).specs()
    assert words in str(error.value)


def test_a_hint_about_an_input_is_read_by_the_file_and_by_the_command(tmp_path: Path) -> None:
    """The runner's own words, with a name that YAML and a shell would take apart."""
    name = "x: {1} 'q' \"d\""
    detail = {"name": name, "shape": (1, 4), "dtype": np.int32, "quantization": (0.0, 0)}
    with pytest.raises(InputSpecNeededError) as error:
        make_pool([detail], "ab" * 32)
    entry, option = re.findall(r"`([^`]+)`", str(error.value))
    campaign = campaign_of(tmp_path, MINIMAL.replace("a.tflite}", f"a.tflite, {entry}}}"))
    asked = InputSpec(low=0, high=999)
    assert campaign.models[0].inputs == {name: asked}
    word, text = shlex.split(option)
    assert (word, InputOptions([text]).specs()) == ("--input", {name: asked})
