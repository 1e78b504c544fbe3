"""LiteRT's published table, beside results of the same files."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.manifest.load import load_manifest
from orchestrator.manifest.problems import ManifestError
from orchestrator.sources.published import published_rows
from orchestrator.sources.zoo import zoo_models
from tests.needs import REPOSITORY
from tests.orchestrator.cli.conftest import Shell
from tests.orchestrator.cli.records import cell

NAME = "torchvision_mobilenet_v2"
FILE = "version: 1\ncampaign: c\nmodels: [{}]\ndelegates: {{cpu: {{kind: cpu}}}}\n"


def test_the_table_has_its_60_rows_and_57_of_them_are_in_the_zoo():
    rows = published_rows()
    assert len(rows) == 60
    assert sum(row.delegated == "full" for row in rows) == 42
    assert [row.model for row in rows if not row.shipped] == [
        "hf_mms_300m", "hf_mobilevit_small", "hf_mobilevit_small_e2e",
    ]  # fmt: skip
    with (REPOSITORY / "examples/zoo/published.csv").open(newline="") as file:
        assert next(row for row in csv.DictReader(file) if row["model"] == NAME)["ms"] == "2.8"


def test_a_result_of_a_row_s_file_stands_beside_it_whatever_the_campaign_calls_it():
    model = replace(cell("mine", "gpu", p50=4.0), model_sha256=zoo_models()[NAME].sha256)
    (row,) = (row for row in published_rows([model]) if row.own)
    assert (row.model, row.ms, row.delegated) == (NAME, 2.8, "full")
    assert (row.own[0].cell_id, row.own[0].p50) == (model.cell_id, "4.00 ms")


def test_the_verb_shows_the_rows_and_says_that_the_devices_differ(shell: Shell):
    told = shell.farm("model", "zoo", "mobilenet_v2", "--published")
    assert NAME in told.out
    assert "2.8" in told.out
    assert "Galaxy S24" in told.out
    assert shell.farm("model", "zoo", NAME, "--published", "--json").json()["rows"][0]["ms"] == 2.8


def asked(folder: Path, models: str) -> list[str]:
    path = folder / "models.yaml"
    path.write_text(FILE.format(models))
    return [f"{entry.id} {entry.source}" for entry in load_manifest(path).models]


def test_a_pattern_over_the_zoo_is_each_model_that_fits_it(tmp_path):
    assert asked(tmp_path, '{id: "v-*", source: "zoo:*squeezenet*"}') == [
        f"v-torchvision_squeezenet1_{end} zoo:torchvision_squeezenet1_{end}" for end in "01"
    ]
    entries = load_manifest(REPOSITORY / "examples/published.yaml")
    left_out = {rule.model for rule in entries.exclude}
    assert {one.id for one in entries.models} - left_out == {r.model for r in published_rows() if r.shipped}


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ('{id: a, source: "zoo:*"}', "write an id with a *, for the name of each"),
        ('{id: "*", source: "zoo:*9000"}', "no model of the zoo fits '*9000'; see: farm model zoo"),
        (f'{{id: "*", source: "zoo:*", sha256: {"0" * 63}a}}', "a hash pins one file"),
    ],
)
def test_a_pattern_that_cannot_be_meant_is_a_mistake(tmp_path, model, said):
    with pytest.raises(ManifestError, match=said.replace("*", r"\*")):
        asked(tmp_path, model)
