"""The delegates beside ours through `farm submit`: measured and judged, or unsupported in their own words."""

from __future__ import annotations

import json

import pytest

from runtime.delegates.peers.openvino import openvino_version
from tests.end_to_end.conftest import run_farm
from tests.needs import REPOSITORY, absent
from tests.runtime.delegates.peers.small_models import conv_model

pytestmark = pytest.mark.exhaustive

MANIFEST = """\
version: 1
campaign: peers
defaults:
  measure:
    blocks: 1
    rounds: 3
    slice: {seconds: 0.06}
    warmup: {runs: 2, min_seconds: 0}
models:
  - {id: conv, source: conv.tflite}
delegates:
  litert-gpu: {kind: litert-gpu}
  openvino: {kind: openvino, precision: [fp32, bf16]}
"""


@pytest.fixture(scope="module")
def cells(tmp_path_factory) -> dict[str, dict]:
    """Return the results by delegate."""
    if openvino_version() is None:
        absent("openvino is not installed: pip install 'openvino>=2026.4'")
    folder = tmp_path_factory.mktemp("peers")
    (folder / "conv.tflite").write_bytes(conv_model())
    (folder / "models.yaml").write_text(MANIFEST, encoding="utf-8")
    ran = run_farm(folder / "home", "submit", str(folder / "models.yaml"))
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    ran = run_farm(folder / "home", "results", "--format", "json")
    assert ran.returncode == 0, ran.stderr
    return {cell["delegate"]: cell for cell in json.loads(ran.stdout)}


def delegated(cell: dict) -> tuple[str, int, int]:
    return tuple(cell["delegation"][key] for key in ("status", "delegated_ops", "total_ops"))


def test_openvino_is_measured_with_its_delegation_and_judged_by_its_precision(cells):
    for precision in ("fp32", "bf16"):
        cell = cells[f"openvino-{precision}"]
        if precision == "bf16" and cell["status"] == "unsupported":
            assert cell["reason"]["code"] == "unsupported_precision"
            continue
        assert cell["status"] == "done", cell["reason"]
        assert delegated(cell) == ("full", 2, 2)
        assert cell["accuracy"]["verdict"] == "pass"
        assert f"({precision})" in cell["accuracy"]["rule"]


def test_litert_gpu_is_measured_or_says_in_its_words_that_there_is_no_gpu(cells):
    cell = cells["litert-gpu"]
    if cell["status"] == "done":
        assert delegated(cell) == ("full", 2, 2)
        assert cell["accuracy"]["verdict"] == "pass"
        return
    assert (cell["status"], cell["reason"]["code"]) == ("unsupported", "no_device")
    assert "LiteRT finds no GPU that it can use: " in cell["reason"]["text"]


def test_the_example_is_a_valid_campaign(tmp_path):
    ran = run_farm(tmp_path, "submit", "--check", str(REPOSITORY / "examples/peers.yaml"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
