"""`farm model zoo` lists the models that come with the farm, and what it names can be submitted."""

from __future__ import annotations

import json

import pytest

from tests.needs import REPOSITORY
from tests.orchestrator.cli.conftest import Shell

INDEX = {
    entry["name"]: entry
    for entry in json.loads((REPOSITORY / "examples/zoo/index.json").read_text(encoding="utf-8"))["models"]
}


def test_every_model_of_the_zoo_is_listed_with_its_facts(shell: Shell) -> None:
    listed = shell.farm("model", "zoo", "--json").json()["models"]
    assert [model["name"] for model in listed] == sorted(INDEX)
    for model in listed:
        known = INDEX[model["name"]]
        told = (model["macs"], model["size_bytes"], model["sha256"], model["licence"], model["source"])
        assert told == tuple(known[key] for key in ("macs", "bytes", "sha256", "licence", "source"))


@pytest.mark.parametrize("asked", ["mobilenet_v2", "*mobilenet_v2*", "zoo:torchvision_mobilenet_v2"])
def test_a_part_of_a_name_or_a_glob_chooses(shell: Shell, asked: str) -> None:
    ran = shell.farm("model", "zoo", asked)
    assert ran.code == 0
    assert "zoo:torchvision_mobilenet_v2" in ran.out
    assert "301" in ran.out, "million multiply-accumulates"
    assert "resnet" not in ran.out


def test_a_name_that_is_not_there_ends_with_2_and_the_closest(shell: Shell) -> None:
    ran = shell.farm("model", "zoo", "mobilenet_v9")
    assert (ran.code, ran.out) == (2, "")
    assert "mobilenet_v9: no such model in the zoo" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_what_is_listed_is_a_source_of_a_campaign(shell: Shell) -> None:
    name = shell.farm("model", "zoo", "squeezenet1_1", "--json").json()["models"][0]["name"]
    text = f"version: 1\ncampaign: one\nmodels: [{{id: one, source: 'zoo:{name}'}}]\n"
    file = shell.write("models.yaml", text + "delegates: {cpu: {kind: cpu}}\n")
    assert shell.farm("submit", "--check", file).code == 0
