"""Campaign files that several tests read, and how they are read."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from orchestrator.manifest.campaign import Campaign
from orchestrator.manifest.load import load_manifest
from orchestrator.manifest.problems import ManifestError
from tests.needs import REPOSITORY

DOCUMENT = (REPOSITORY / "docs" / "models-yaml.md").read_text(encoding="utf-8")

MINIMAL = """\
version: 1
campaign: c
models:
  - {id: a, source: a.tflite}
delegates:
  cpu: {kind: cpu}
"""

FULL = """\
version: 1
campaign: nightly
level: standard
labels: {team: vision, run: 7}
defaults:
  measure:
    warmup: {runs: 7, min_seconds: 0.25}
    blocks: 4
    target: 2%
    rounds: 5
    slice: {min_runs: 9, seconds: 0.2}
  reuse: max-age:7d
  limits: {job: 15m}
models:
  - id: a
    source: pypi:some-pkg==1.10!some/model.tflite
    platform: manylinux_2_28_x86_64
    python: 3.10
    measure: {blocks: {max: 8}, target: 0.011, slice: {seconds: 0.5}}
    limits: {job: 30s}
    inputs:
      image: {shape: [1, 224, 224, 3], random: {seed: 7, range: [-1, 1]}}
  - {id: b, source: zoo:b}
delegates:
  cpu: {kind: cpu, threads: [1, 4]}
  gpu: {kind: gpu, precision: fp32}
devices:
  - {kind: gpu, vendor: nvidia, labels: {room: a}}
  - {name: cpu-*}
exclude: [{model: "b", delegate: "cpu-*"}]
baseline: {delegate: cpu-t4, against: {campaign: weekly~1}}
"""


def load(folder: Path, text: str | bytes) -> Campaign:
    path = folder / "models.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_manifest(path)


def mistakes(folder: Path, text: str | bytes) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        load(folder, text)
    assert caught.value.exit_code == 2
    prefix = str(folder / "models.yaml") + ":"
    lines = str(caught.value).splitlines()
    assert all(line.startswith(prefix) for line in lines)
    return [line.removeprefix(prefix) for line in lines]


def model(fields: str) -> str:
    return MINIMAL.replace("{id: a, source: a.tflite}", "{id: a, source: a.tflite, " + fields + "}")


def added(lines: str) -> str:
    return MINIMAL + textwrap.dedent(lines)


def campaign_of(folder: Path, text: str) -> Campaign:
    path = folder / "models.yaml"
    path.write_text(text)
    return load_manifest(path)
