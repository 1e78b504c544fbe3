"""One real campaign per test session: a model of the demo, briefly measured, and three others.

All nine models of the demo are measured by the exhaustive tests.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser, sync_playwright

from tests.end_to_end.odd_models import lacking_operator_model, partial_model, quantised_skeleton
from tests.needs import REPOSITORY
from tests.needs import browser as chromium_path
from tests.services.forks import run
from tests.services.wheels import own_wheel

SHORT = {
    "blocks": 1,
    "rounds": 3,
    "slice": {"min_runs": 5, "seconds": 0.06},
    "warmup": {"runs": 2, "min_seconds": 0},
}
"""How each cell is measured here: briefly, since the figures are not what is tested."""

LONGEST_S = 7200.0
"""Seconds after which `farm` counts as stuck: all models of the demo take half an hour on a busy machine. A
smaller value would end a campaign that goes on, a larger one only lets a stuck one wait."""

FEW = ("face_landmark",)
"""Models of the demo that the default suite measures: a trained one, of floats. It is not measured on `gpu`,
where its kernels take longest to compile."""

QUANTISED = "quantised"
"""A small model of integers, restored from its skeleton: LiteRT's reference kernels take seconds for the
demo's own."""


@dataclass(frozen=True)
class Campaign:
    """A finished campaign: its home, its manifest, and what `farm submit` said."""

    home: Path
    manifest: Path
    exit_code: int
    output: str

    def farm(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `farm` on this home."""
        return run_farm(self.home, *arguments)

    @cached_property
    def results(self) -> list[dict]:
        """The objects of `farm results --format json`."""
        ran = self.farm("results", "--format", "json")
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    def cell(self, model: str, delegate: str) -> dict:
        """Return the one result of a model on a delegate."""
        (found,) = [r for r in self.results if (r["model"], r["delegate"]) == (model, delegate)]
        return found


def run_farm(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`farm ...` as a user types it, with its data in `home`."""
    return run(
        "farm", *arguments, cwd=REPOSITORY, env=os.environ | {"FARM_HOME": str(home)}, timeout=LONGEST_S
    )


def measured(folder: Path, models: Sequence[str], *, spends_budget: bool) -> Campaign:
    """Measure these models of the demo, the quantised one and the two odd ones.

    With `spends_budget`, go on with the vaguest cells while the demo's time lasts, which takes as long again
    and which `tests/orchestrator/cli/test_refine.py` shows in seconds.
    """
    manifest = yaml.safe_load((REPOSITORY / "examples/models.yaml").read_text(encoding="utf-8"))
    manifest["defaults"] = {"measure": SHORT}
    if not spends_budget:
        # Its rules are about models that are not among these.
        del manifest["time_budget"], manifest["delegates"]["gpu-bf16"]
        manifest["exclude"] = [{"delegate": "gpu", "model": model} for model in models]
    # The odd models have three operators on few numbers, which no transfer would be worth.
    manifest["delegates"]["gpu"]["cost_aware_partitioning"] = False
    manifest["models"] = [entry for entry in manifest["models"] if entry["id"] in models]
    assert len(manifest["models"]) == len(models)
    for file, content in (
        (f"{QUANTISED}.skel", quantised_skeleton()),
        ("partial.tflite", partial_model()),
        ("lacking.tflite", lacking_operator_model()),
    ):
        (folder / file).write_bytes(content)
        manifest["models"].append({"id": Path(file).stem, "source": file})
    path = folder / "models.yaml"
    path.write_text(yaml.safe_dump(manifest, sort_keys=False), encoding="utf-8")
    ran = run_farm(folder / "home", "submit", str(path))
    return Campaign(folder / "home", path, ran.returncode, ran.stdout + ran.stderr)


@pytest.fixture(scope="session")
def campaign(tmp_path_factory) -> Campaign:
    return measured(tmp_path_factory.mktemp("campaign"), FEW, spends_budget=False)


@pytest.fixture(scope="session")
def demo(tmp_path_factory) -> Campaign:
    models = yaml.safe_load((REPOSITORY / "examples/models.yaml").read_text(encoding="utf-8"))["models"]
    return measured(tmp_path_factory.mktemp("demo"), [entry["id"] for entry in models], spends_budget=True)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """Return the wheel of this tree."""
    return own_wheel(tmp_path_factory.mktemp("wheel"))


QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Open a browser without a window, that sends nothing of its own accord.

    Of one module: while it is open, an event loop runs in this thread, and others could start none.
    """
    path = chromium_path()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        yield browser
        browser.close()
