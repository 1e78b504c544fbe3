"""The JSON Schema that editors use says what the readers say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

from orchestrator.manifest.editors import manifest_schema
from orchestrator.manifest.load import parse_manifest
from orchestrator.manifest.problems import ManifestError
from tests.needs import REPOSITORY

if TYPE_CHECKING:
    import jsonschema

PUBLISHED = REPOSITORY / "docs/models.schema.json"
BASE = """\
version: 1
campaign: c
models:
  - {id: a, source: a.tflite}
delegates:
  cpu: {kind: cpu}
"""
GOOD = {
    "base": BASE,
    "swept threads": BASE.replace("kind: cpu", "kind: cpu, threads: [1, 2]"),
    "a numeric name": BASE.replace("campaign: c", "campaign: 12"),
    "durations": BASE + "defaults: {limits: {job: 15m}}\n",
    "seconds": BASE + "defaults: {limits: {job: 90}}\n",
    "an age": BASE + "defaults: {reuse: 'max-age:7d'}\n",
    "a count of blocks": BASE + "defaults: {measure: {blocks: 6, target: 5%}}\n",
    "bounds of blocks": BASE + "defaults: {measure: {blocks: {min: 3, max: 40}, target: 0.015}}\n",
    "a range": BASE.replace(
        "a.tflite}", "a.tflite, inputs: {x: {shape: [1, 3], random: {seed: 7, range: [-1, 1]}}}}"
    ),
    "a baseline": BASE + "baseline: {delegate: cpu}\n",
    "devices": BASE + "devices: [{kind: cpu, count: 2, labels: {rack: 3}}]\n",
}
BAD = {
    "an unknown key": BASE + "levle: quick\n",
    "a missing key": BASE.replace("campaign: c\n", ""),
    "an unknown kind": BASE.replace("kind: cpu", "kind: gpuu"),
    "an unknown option": BASE.replace("kind: cpu", "kind: cpu, treads: 2"),
    "an option of the wrong type": BASE.replace("kind: cpu", "kind: cpu, threads: many"),
    "a later version": BASE.replace("version: 1", "version: 2"),
    "no models": BASE.replace("  - {id: a, source: a.tflite}\n", "  []\n"),
    "an unknown level": BASE + "level: slow\n",
    "no duration": BASE + "defaults: {limits: {job: soon}}\n",
    "a rule of reuse that there is not": BASE + "defaults: {reuse: always}\n",
    "an age without a unit": BASE + "defaults: {reuse: 'max-age:604800'}\n",
    "an age after a blank": BASE + "defaults: {reuse: 'max-age: 7d'}\n",
    "too many blocks": BASE + "defaults: {measure: {blocks: 41}}\n",
    "an unknown bound of blocks": BASE + "defaults: {measure: {blocks: {least: 3}}}\n",
    "a target above one": BASE + "defaults: {measure: {target: 5}}\n",
    "a target without digits": BASE + "defaults: {measure: {target: narrow}}\n",
    "a share above one": BASE.replace("a.tflite}", "a.tflite, accuracy: {dataset: d.npz, at_least: 70}}"),
    "a short hash": BASE.replace("a.tflite}", "a.tflite, sha256: abc}"),
}


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    import jsonschema  # It takes more than a second, which every worker would spend to list the tests.

    schema = manifest_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("case", GOOD)
def test_what_the_farm_reads_the_schema_accepts(validator, case):
    parse_manifest(GOOD[case].encode(), "models.yaml")
    assert list(validator.iter_errors(yaml.safe_load(GOOD[case]))) == []


@pytest.mark.parametrize("case", BAD)
def test_what_the_farm_refuses_the_schema_refuses(validator, case):
    with pytest.raises(ManifestError):
        parse_manifest(BAD[case].encode(), "models.yaml")
    assert list(validator.iter_errors(yaml.safe_load(BAD[case])))


@pytest.mark.parametrize("name", ["models.yaml", "peers.yaml", "interfaces.yaml"])
def test_the_examples_fit_the_schema(validator, name):
    content = yaml.safe_load((REPOSITORY / "examples" / name).read_text(encoding="utf-8"))
    assert list(validator.iter_errors(content)) == []


def test_the_published_schema_is_the_present_one():
    stale = f"stale: farm submit --schema --json > {PUBLISHED.relative_to(REPOSITORY)}"
    assert json.loads(PUBLISHED.read_text(encoding="utf-8")) == manifest_schema(), stale
